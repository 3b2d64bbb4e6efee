"""The vocabulary of the coordinator's rules: events, effects, records, plans and the rebalance ledger. No group
state.
"""
