"""A record's way from Kafka to the Delta log, in the order in which it is walked."""
