"""The tests, and what they need to run: real brokers, fakes, judges."""
