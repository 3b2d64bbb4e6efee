"""Operations pipelines: what the ledger and the committed offsets tell, and assignors tried on recorded histories.

`backtest` needs no Spark and gives the same figures with it; `analytics` reads through the data source.
"""
