"""All that knows delta-rs: files, the log, opening, guards. Nothing here knows Kafka."""
