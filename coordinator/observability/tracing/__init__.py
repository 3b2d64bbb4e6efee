"""A rebalance as a trace, made of its ledger entry after the fact.

`rebalance_spans.py` says which spans an entry is, `causes.py` remembers which request set a rebalance off, `export.py`
hands them to OpenTelemetry in threads of its own, and is imported when that is wanted.
"""
