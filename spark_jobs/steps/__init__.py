"""Claimed steps: each change of silver and quarantine exactly once."""
