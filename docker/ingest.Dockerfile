# syntax=docker/dockerfile:1
# The ingestor: Python and its wheels, without JVM and compiler. Build from the repository's root:
#   docker build -f docker/ingest.Dockerfile -t ingestor .
# To pin the base beyond its version, build with --build-arg BASE=python:3.12.11-slim-bookworm@sha256:...
ARG BASE=python:3.12.11-slim-bookworm
# The same image with a C compiler, for the native intake.
ARG BUILD_BASE=python:3.12.11-bookworm

FROM ${BUILD_BASE} AS build
WORKDIR /src
COPY requirements/build.txt requirements/ingest.txt requirements/
# Every hash is checked; no step fetches its own build backend.
RUN python -m venv /opt/ingestor \
 && /opt/ingestor/bin/pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements/ingest.txt \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY ingestor ingestor
COPY spark_jobs spark_jobs
RUN /opt/build/bin/hatchling build --target wheel \
 && /opt/ingestor/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM ${BASE}
# Records come in on librdkafka's thread and are freed on ours: this allocator takes a sixth less CPU for small ones than
# libc's. The version is Debian's own for this release of it; a pin would only make the build fail when updates come.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends libtcmalloc-minimal4 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/ingestor /opt/ingestor
# A number, since Kubernetes checks runAsNonRoot by it.
USER 10001:10001
WORKDIR /var/lib/ingestor
ENV PATH=/opt/ingestor/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 LD_PRELOAD=libtcmalloc_minimal.so.4
EXPOSE 8080
# Nothing is written but the table: run it with a read-only root. SIGTERM flushes what is in hand, in at most 10 s.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["/opt/ingestor/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/livez', timeout=2)"]
ENTRYPOINT ["/opt/ingestor/bin/ingestor"]
CMD ["run", "/etc/ingestor/config.yaml"]
