"""A node's state in somebody's Kafka: performs `coordinator.ownership`. Imported with `engine=kafka://...` only."""
