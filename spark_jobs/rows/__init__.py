"""From raw rows to outcomes, in Spark's own expressions."""
