"""The truth table: what Muster reports about rebalances against what happened. `python -m tests.truth` prints it."""
