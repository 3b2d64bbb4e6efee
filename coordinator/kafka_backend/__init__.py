"""A node's state in somebody's Kafka: performs `coordinator.kafka_backend.shard_ownership`. Imported with
`engine=kafka://...` only.
"""
