"""Everything that uses librdkafka: the consumer, requests to brokers, and the conversion of messages to columns."""
