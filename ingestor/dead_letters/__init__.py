"""`ingestor dlq`: publishes quarantined records to dead letter topics, and replays them to their source topics.

letters     the table's columns, and an index of its files' rows;   portions: letters in pieces that fit memory
quarantine  the table, and commits by compare-and-swap
pending     which letters are new by the table's log, and which files have them now
attempt     what is noted before a letter is sent, and how it is recognised;   message: a letter as a Kafka record
topics      the dead letter topics: created or refused
sender      records into Kafka, in transactions;   scan: what has got there
publish     one route's new letters;   service: all routes, once or repeatedly
selection   which letters a command means;   listing shows them, replay sends them back, replayed remembers them
"""
