"""The path of a record from Kafka's columns to the Delta log."""
