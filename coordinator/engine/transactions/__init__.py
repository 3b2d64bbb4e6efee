"""Exactly-once of clients' producers over somebody's Kafka (KB-E1 to KB-E5), by the rules of `ownership.following`.

positions.py    between records of the state topic and what the core is told of transactions
writing.py      performs what is to be written in clients' names, and tells the core what came of it
following.py    reads on in the shards in which a client's transaction is open
committing.py   one TxnOffsetCommit, from its group's leave to its answer
hanging.py      what waits for the end of a transaction, and since when, for operators
handlers.py     that, and a shard's partition in a client's transaction, as APIs of Kafka's door
"""
