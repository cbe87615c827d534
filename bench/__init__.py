"""Benchmarks: what ingesting costs, each figure beside the least that it could be."""

import ingestor  # noqa: F401 - what it asks of numpy and pyarrow before they are loaded holds for the floors too
