"""What `muster bench spark` measures: the data source against Spark's own sources, and its allocation of work."""
