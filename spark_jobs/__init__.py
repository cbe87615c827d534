"""PySpark jobs that parse and compact what the ingestor lands."""
