"""Fences: who may write on behalf of a partition, as the log itself can tell."""
