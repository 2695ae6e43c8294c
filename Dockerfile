# Three images from one file: `--target api`, `--target worker`, `--target dispatch`.
#
# BASE may be any image whose `python3` is Python 3.11 to 3.13 with venv: a CUDA image for workers, say. What is installed
# in BASE (torch, for example) is seen by the worker behind its own packages. An image is BASE and two layers: the locked
# packages, which seldom change, and trainlet. Nothing is compiled, and nothing is installed but what image/locks names.
#
# Without a network: build with a folder of wheels (image/wheelhouse.sh makes it) and
#   --volume "$PWD/wheels:/wheels:ro" --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/wheels
ARG BASE=python:3.11-slim

FROM ${BASE} AS tools
ARG PIP_NO_INDEX=
ARG PIP_FIND_LINKS=
ENV PIP_NO_INDEX=${PIP_NO_INDEX} PIP_FIND_LINKS=${PIP_FIND_LINKS}
WORKDIR /src
COPY image image
RUN image/install.sh tools && mkdir /empty

FROM tools AS code
COPY pyproject.toml README.md LICENSE ./
COPY sdk sdk
COPY pipelines pipelines
COPY functions functions
COPY knative knative
RUN image/install.sh code

FROM tools AS dispatch-packages
RUN image/install.sh packages dispatch
FROM dispatch-packages AS dispatch-files
COPY --from=code /opt/trainlet/code /opt/trainlet/code
RUN image/install.sh bill dispatch

FROM tools AS worker-packages
RUN image/install.sh packages worker
FROM worker-packages AS worker-files
COPY --from=code /opt/trainlet/code /opt/trainlet/code
RUN image/install.sh bill worker

FROM tools AS api-packages
RUN image/install.sh packages api
FROM api-packages AS api-files
COPY --from=code /opt/trainlet/code /opt/trainlet/code
RUN image/install.sh bill api

# Whoever has no entry in /etc/passwd needs a name all the same: getpass (torch's caches ask it) looks at USER first.
FROM ${BASE} AS common
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY --from=tools --chown=65532:65532 /empty /var/lib/trainlet
ENV PATH=/opt/trainlet/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 USER=trainlet HOME=/var/lib/trainlet \
    TRAINLET_HOME=/var/lib/trainlet TRAINLET_LOG=json
LABEL org.opencontainers.image.source="https://github.com/trainlet/trainlet" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
WORKDIR /var/lib/trainlet
USER 65532:65532

FROM common AS dispatch
LABEL org.opencontainers.image.title="trainlet-dispatch" \
      org.opencontainers.image.description="The light pod of a compiled step: it waits while the work is done elsewhere"
COPY --from=dispatch-files /opt/trainlet/venv /opt/trainlet/venv
COPY --from=dispatch-files /opt/trainlet/code /opt/trainlet/code
ENTRYPOINT ["python", "-m", "trainlet_pipelines.dispatch"]

FROM common AS worker
LABEL org.opencontainers.image.title="trainlet-worker" \
      org.opencontainers.image.description="Serves one function: claims tasks, runs them in a child process, meters the GPUs"
ENV PORT=8080
COPY --from=worker-files /opt/trainlet/venv /opt/trainlet/venv
COPY --from=worker-files /opt/trainlet/code /opt/trainlet/code
EXPOSE 8080
ENTRYPOINT ["python", "-m", "trainlet_functions.worker"]

FROM common AS api
LABEL org.opencontainers.image.title="trainlet-api" \
      org.opencontainers.image.description="The training API"
COPY --from=api-files /opt/trainlet/venv /opt/trainlet/venv
COPY --from=api-files /opt/trainlet/code /opt/trainlet/code
EXPOSE 8080
ENTRYPOINT ["python", "-m", "trainlet_functions.api"]
CMD ["--host", "0.0.0.0", "--port", "8080", "--stay"]
