"""What tests fetch or build once, and readers of our own files."""
