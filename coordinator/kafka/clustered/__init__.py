"""What Kafka's door answers where a node is one of many. Imported in cluster mode only."""
