"""Spark Structured Streaming, Kafka to Delta: all that a topic holds, with the ingestor's columns. For spark-submit."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(bootstrap: str, topic: str, table: str) -> None:
    """Drain a topic into a Delta table."""
    spark = SparkSession.builder.getOrCreate()
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(
            f.col("topic").alias("stream_topic"),
            f.col("partition").alias("stream_partition"),
            f.col("offset").alias("stream_offset"),
            f.col("timestamp").alias("message_timestamp"),
            f.col("value").alias("message_payload"),
        )
    )
    query = (
        records.writeStream.format("delta")
        .option("checkpointLocation", f"{table}-checkpoint")
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
