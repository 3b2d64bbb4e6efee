"""Partition assignors: pure functions of a serialisable snapshot."""
