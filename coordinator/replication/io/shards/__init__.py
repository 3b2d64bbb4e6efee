"""Groups on many nodes: a shard is served by the leader of its unit, while it is sure to be that."""
