"""The Spark session, its jars, and access to tables and stores."""
