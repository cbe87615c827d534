"""What ingesting costs: throughput, CPU and memory, each beside the least that it could cost. See README.md."""

import ingestor  # noqa: F401 - what it asks of numpy and pyarrow before they are loaded holds for the floors too
