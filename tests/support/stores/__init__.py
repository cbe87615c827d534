"""Real stores, and proxies that make them fail."""
