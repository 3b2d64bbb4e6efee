"""`muster bench engine`: a node whose state is in somebody's Kafka, beside what that Kafka does itself.

inside.py    a node in this process: what is asked of it goes by no door
commits.py   P1 to P3: commits, one and many
taking.py    P4: taking a shard with much in it
beating.py   P7: heartbeats, beside a node with a log of its own
failover.py  P8, P9: the owner is killed, or told to stop
"""
