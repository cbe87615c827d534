"""A lightweight transactional Kafka to Delta Lake ingestor."""
