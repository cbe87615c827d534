"""Stand-ins for Kafka, the Delta log, its storage and the threads, which a test can drive step by step."""
