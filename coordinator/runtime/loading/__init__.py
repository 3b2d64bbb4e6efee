"""Shards come from the log: which are replayed, and how."""
