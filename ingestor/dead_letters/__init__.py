"""`ingestor dlq`: what the Spark jobs could not parse, from the quarantine table to its topic, and back when mended.

letters     the table's columns, and which rows its files have;   portions: letters, as many as memory holds
quarantine  the table, and commits that compare and swap
pending     which letters are new, by the table's log, and where they lie now
attempt     what is noted before a letter is sent, and how it is known again;   message: as a Kafka record
topics      the dead letter topics: made, refused
sender      records into Kafka, in transactions
publish     one route's new letters;   service: all routes, once or again and again
selection   which letters a person means;   listing shows them, replay sends them back, replayed remembers which
"""
