"""One module for each command, and what commands share."""
