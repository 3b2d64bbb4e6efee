"""Many nodes: who leads a partition, who is in sync, what counts as committed. Pure, like the core.

Nothing here reads a clock, a file, a socket or a random number: moments come as arguments, in milliseconds of a
monotonic clock, and what is to be done comes back as values. `coordinator.replication.io` performs it. The rules, with
their reasons, are Kafka's (KIP-101, 279, 320, 497, 595, 841, 903, 966) where nothing else is said.
"""
