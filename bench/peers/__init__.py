"""Others that land Kafka records, beside the ingestor: each a script of its own, run from its own package."""

from bench.peers.compare import main

__all__ = ["main"]
