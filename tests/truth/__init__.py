"""The truth table: what Muster tells about a rebalance, against what happened. `python -m tests.truth` prints it."""
