"""A lightweight transactional Kafka to Delta Lake ingestor."""

import os
import platform
import sys

# Set before numpy is imported: its BLAS starts threads that spin for a while, and nothing here multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Set before pyarrow is imported. One thread fills the buffers and another frees them; with pyarrow's default allocator
# that takes a tenth more memory at the peak of a drain, and slightly more CPU. pyarrow's ARM wheels have no jemalloc.
if sys.platform == "linux" and platform.machine() == "x86_64":
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")

# The name for pip and importlib.metadata; `ingestor` on PyPI is another project.
DISTRIBUTION = "txn-ingestor"
