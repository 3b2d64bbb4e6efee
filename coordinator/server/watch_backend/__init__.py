"""The backend of a node that watches the groups of a Kafka and coordinates none."""
