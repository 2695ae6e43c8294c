# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
FOCUS_PYTHON ?= python3.12

.PHONY: demo retrain test test-crash test-torch test-focus test-functions test-minimum test-newest test-image bench bench-checkpoint bench-events bench-knative bench-metering lint types layers locks locks-current check clean

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv

$(VENV)/.demo: $(BIN)/uv pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[server]' scikit-learn
	@touch $@

$(VENV)/.dev: $(BIN)/uv pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[all]' --group dev
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo  ## Run the digits pipeline twice, the second time with its worker killed, and print the bill.
	$(BIN)/python examples/demo.py

retrain: $(VENV)/.demo  ## Drop files into a folder: each starts a retraining, the same file again starts nothing.
	$(BIN)/python examples/retrain.py

test: $(VENV)/.dev  ## Run the tests.
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)

# What depends on versions, without the tests that only wait for processes, kill them, or are long.
VERSIONED := -m "not slow" --ignore tests/knative/contract --ignore tests/client/embedded \
	--ignore tests/functions/checkpoints/test_every_store_call_may_be_the_last.py \
	--ignore tests/functions/checkpoints/test_every_system_call_may_be_the_last.py \
	tests/core tests/client tests/functions tests/knative tests/pipelines tests/sdk/bundles tests/sdk/steps tests/sdk/pipelines

define versioned  # an environment's name, its Python, how versions are chosen
	$(BIN)/uv venv --quiet --clear --python $(2) $(VENV)-$(1)
	$(BIN)/uv pip install --quiet --python $(VENV)-$(1)/bin/python $(3) -e '.[all]'
	$(BIN)/uv pip install --quiet --python $(VENV)-$(1)/bin/python uv --group dev
	$(VENV)-$(1)/bin/python -m pytest -n 2 --dist loadgroup -q -p no:cacheprovider $(VERSIONED)
	rm -rf $(VENV)-$(1)
endef

test-minimum: $(VENV)/.dev  ## Run tests with the oldest versions that pyproject.toml allows.
	$(call versioned,minimum,$(BIN)/python,--resolution lowest-direct)

test-newest: $(VENV)/.dev  ## Run tests on another Python: make test-newest NEWEST=python3.13
	$(call versioned,newest,$(NEWEST),)

test-crash: $(VENV)/.dev  ## Run the whole crash matrix of the checkpoints; make test runs a sample of it.
	TRAINLET_TEST_CRASHES=all $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests/functions/checkpoints/test_every_store_call_may_be_the_last.py tests/functions/checkpoints/test_every_system_call_may_be_the_last.py

$(VENV)-torch/.ready: $(BIN)/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-torch
	$(BIN)/uv pip install --quiet --python $(VENV)-torch/bin/python -e '.[server]' --group torch
	@touch $@

test-torch: $(VENV)-torch/.ready  ## Run the tests that need PyTorch, Lightning and transformers, in an environment of their own.
	OMP_NUM_THREADS=1 $(VENV)-torch/bin/python -m pytest -q -W default -p no:cacheprovider tests/sdk/integrations tests/e2e/test_ranks_meet_over_gloo.py $(PYTEST_ARGS)

$(VENV)-focus/.ready: $(BIN)/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear --python $(FOCUS_PYTHON) $(VENV)-focus
	$(BIN)/uv pip install --quiet --python $(VENV)-focus/bin/python --group focus
	@touch $@

test-focus: $(VENV)/.dev $(VENV)-focus/.ready  ## Ask the official validator of FOCUS about an export: make test-focus FOCUS_PYTHON=python3.12
	TRAINLET_TEST_FOCUS_VALIDATOR=$(abspath $(VENV)-focus/bin/focus-validator) $(BIN)/python -m pytest -q -n 2 tests/functions/exports/test_the_official_validator_agrees.py $(PYTEST_ARGS)

$(VENV)-functions/.ready: $(BIN)/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-functions
	$(BIN)/uv pip install --quiet --python $(VENV)-functions/bin/python -e . --group functions
	@touch $@

test-functions: $(VENV)-functions/.ready  ## Run trainlet as a function of functions-framework, in an environment of its own.
	$(VENV)-functions/bin/python -m pytest -q -W default -p no:cacheprovider --confcutdir tests/sdk/functions tests/sdk/functions $(PYTEST_ARGS)

bench: $(VENV)/.dev  ## Measure, beside a peer where one exists; JSON on stdout and in benchmarks/results.json.
	$(BIN)/python benchmarks/run.py

bench-checkpoint: $(VENV)/.dev  ## Measure what checkpoints cost, beside a plain copy, and beside peers after make test-torch.
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/bench_checkpoint.py 512 1024
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/bench_recovery.py 1024
	$(BIN)/python benchmarks/bench_sigterm.py 512
ifneq ($(wildcard $(VENV)-torch/.ready),)
	OMP_NUM_THREADS=1 $(VENV)-torch/bin/python benchmarks/bench_peers.py 512
endif

bench-events: $(VENV)/.dev  ## Measure events: to an accepted run, per second with 1,000 subscriptions, beside many ids, and polling.
	$(BIN)/python benchmarks/bench_events.py --out benchmarks/events.json

bench-knative: $(VENV)/.dev  ## Measure dispatch, acknowledgment, hold and start of a worker with the imitation of Knative; < 1 minute.
	$(BIN)/python benchmarks/bench_knative.py

bench-metering: $(VENV)/.dev  ## Measure the ledger: durable ingest, rating, totals by hour, event to billable; beside the bars.
	$(BIN)/python benchmarks/bench_metering.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy sdk pipelines functions knative

layers: $(VENV)/.dev
	$(BIN)/lint-imports

locks: $(VENV)/.dev  ## Write the locks of the images anew, keeping versions that still fit; LOCK_ARGS=--upgrade takes the newest.
	$(BIN)/python image/lock.py $(LOCK_ARGS)

locks-current: $(VENV)/.dev  ## Say whether the locks are what pyproject.toml asks for.
	$(BIN)/python image/lock.py --check

test-image: $(VENV)/.dev  ## Build the images and start them: needs root, buildah and debootstrap (both Debian packages).
	TRAINLET_TEST_IMAGE_BUILD=1 $(BIN)/python -m pytest tests/image --durations 5 --timeout 1200 $(PYTEST_ARGS)

check: lint types layers test  ## Everything that a change must pass.

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
