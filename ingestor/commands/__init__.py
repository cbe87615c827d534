"""One module per command, and what commands share."""
