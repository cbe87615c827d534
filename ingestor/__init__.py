"""A lightweight transactional Kafka to Delta Lake ingestor."""

import os
import platform
import sys

# Before numpy comes: its BLAS would start threads that spin for a while, and nothing here multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Before pyarrow comes: buffers of megabytes that one thread fills and another one empties cost its usual allocator a
# tenth more memory at the peak of a drain, and a little more CPU. pyarrow's wheels for ARM come without it.
if sys.platform == "linux" and platform.machine() == "x86_64":
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")

# What pip and importlib.metadata call it: `ingestor` on PyPI is somebody else's.
DISTRIBUTION = "txn-ingestor"
