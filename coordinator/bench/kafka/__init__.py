"""A real Kafka broker as a peer: its jars, its process, or one that runs already."""
