"""Three nodes over one Kafka: the real machines of `coordinator/kafka_backend/shard_ownership` and the real member of
the nodes' group, with models of partitions, of the transaction coordinator and of the group's coordinator. What a
shard keeps is a small
model: keys with numbers that rise."""
