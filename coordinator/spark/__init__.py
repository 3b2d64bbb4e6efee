"""Topics as a Spark data source, and pipelines over the rebalance ledger. The only room that knows pyspark."""
