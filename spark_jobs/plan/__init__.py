"""What a batch is parsed by, checked without a JVM."""
