"""Shards of a node that shares them with others: it answers for those that it leads, as long as it is sure to."""
