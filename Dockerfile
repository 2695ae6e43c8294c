# Three images from one file: `--target api`, `--target worker`, `--target dispatch`.
# BASE may be any image with Python 3.11 to 3.13, such as one that brings CUDA.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --quiet build hatchling
COPY pyproject.toml README.md LICENSE ./
COPY sdk sdk
COPY pipelines pipelines
COPY functions functions
COPY knative knative
RUN /opt/build/bin/python -m build --no-isolation --wheel --outdir /wheels

FROM ${BASE} AS dispatch
COPY --from=build /wheels /wheels
RUN python3 -m venv /opt/trainlet \
    && /opt/trainlet/bin/pip install --quiet --no-cache-dir /wheels/*.whl \
    && rm -rf /wheels
ENV PATH=/opt/trainlet/bin:$PATH PYTHONUNBUFFERED=1 TRAINLET_HOME=/tmp/trainlet
USER 65532:65532
ENTRYPOINT ["python", "-m", "trainlet_pipelines.dispatch"]

FROM ${BASE} AS server
COPY --from=build /wheels /wheels
RUN python3 -m venv /opt/trainlet \
    && /opt/trainlet/bin/pip install --quiet --no-cache-dir "$(ls /wheels/*.whl)[server,cluster]" uv \
    && rm -rf /wheels
ENV PATH=/opt/trainlet/bin:$PATH PYTHONUNBUFFERED=1 TRAINLET_HOME=/tmp/trainlet
USER 65532:65532

FROM server AS worker
ENV PORT=8080
EXPOSE 8080
ENTRYPOINT ["python", "-m", "trainlet_functions.worker"]

FROM server AS api
EXPOSE 8080
ENTRYPOINT ["python", "-m", "trainlet_functions.api"]
CMD ["--host", "0.0.0.0", "--port", "8080", "--home", "/tmp/trainlet"]
