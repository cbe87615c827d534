"""What tests start, stop and read from."""
