"""The plan by which a batch is parsed, checked without a JVM."""
