"""A lightweight transactional Kafka to Delta Lake ingestor."""

import os

# Before numpy comes: its BLAS would start threads that spin for a while, and nothing here multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
