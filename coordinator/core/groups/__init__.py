"""What is the same for every kind of group: its data, its protocol, the shard's state, and its entries in the
ledger.
"""
