"""`muster bench engine`: a node whose state is in somebody's Kafka, beside what that Kafka does itself.

inside.py    a node in this process: what is asked of it goes by no door
commits.py   KB-P1 to KB-P3: commits, one and many
taking.py    KB-P4: taking a shard with much in it
beating.py   KB-P7: heartbeats, beside a node with a log of its own
failover.py  KB-P8, KB-P9: the owner is killed, or told to stop
"""
