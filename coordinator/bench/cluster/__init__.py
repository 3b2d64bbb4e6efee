"""What `muster bench cluster` measures: three nodes, beside one alone and beside three brokers of Kafka."""
