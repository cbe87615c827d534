"""Real brokers, their topics, and traffic on them."""
