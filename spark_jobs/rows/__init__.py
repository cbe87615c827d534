"""Turns raw rows into outcomes, by Spark's own expressions."""
