"""`ingestor dlq`: what the Spark jobs could not parse, from the quarantine table to its topic, and back when mended.

letters     the table's columns, and how its files are read
quarantine  what is new in the log; commits that compare and swap
message     a letter as a Kafka record, in both formats, and how it is known again
topics      the dead letter topics: made, refused
sender      records into Kafka, in transactions;   scan: what has got there
publish     one route's new letters;   service: all routes, once or again and again
selection   which letters a person means;   listing shows them, replay sends them back
"""
