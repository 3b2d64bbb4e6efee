"""What is the same for every kind of group: its data, its protocol, what extensions may add, the shard's state, and
entries in the ledger.
"""
