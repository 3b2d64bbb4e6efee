"""Is balance calm? Seeded traces of load, replayed under Muster's rules and under others that were published.

`muster pipeline backtest --suite balance`; figures in docs/assignors/balance.md.
"""
