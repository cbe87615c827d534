"""All that knows librdkafka: the consumer, questions to brokers, and the way from messages to columns."""
