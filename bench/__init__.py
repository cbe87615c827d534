"""What ingesting costs: throughput, CPU and memory, each beside the least that it could cost. See README.md."""
