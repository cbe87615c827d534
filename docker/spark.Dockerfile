# syntax=docker/dockerfile:1
# The Spark jobs (and the ingestor's own commands): Java 17 and pyspark. Build from the repository's root:
#   docker build -f docker/spark.Dockerfile -t ingestor-spark .
ARG BASE=python:3.12.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/build.txt requirements/spark.txt requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements/build.txt \
 && python -m venv /opt/ingestor \
 && /opt/ingestor/bin/pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements/build.txt \
 && /opt/ingestor/bin/pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements/spark.txt
COPY pyproject.toml README.md LICENSE ./
COPY ingestor ingestor
COPY spark_jobs spark_jobs
RUN /opt/build/bin/hatchling build --target wheel \
 && /opt/ingestor/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM ${BASE}
# The version is Debian's own for this release of it; a pin would only make the build fail when security updates come.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o 10001 -g 10001 /var/lib/ingestor
COPY --from=build /opt/ingestor /opt/ingestor
USER 10001:10001
WORKDIR /var/lib/ingestor
# Spark's scratch space and the jars that Ivy fetches: mount a volume at HOME, and a tmpfs at /tmp.
ENV PATH=/opt/ingestor/bin:$PATH HOME=/var/lib/ingestor PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A job ends, and its exit code tells how.
HEALTHCHECK NONE
ENTRYPOINT ["/opt/ingestor/bin/python", "-m", "spark_jobs"]
CMD ["--help"]
