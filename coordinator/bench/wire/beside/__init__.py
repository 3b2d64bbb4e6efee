"""Kafka's own broker and a node side by side, at Kafka's door, with the same lean clients."""
