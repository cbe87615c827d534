"""Processes that tests start, hold and stop."""
