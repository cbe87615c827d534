"""The Spark session, its jars, and the places that tables lie in."""
