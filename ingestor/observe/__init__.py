"""What people and machines see of a running process: metrics, lag, status, HTTP, the page."""
