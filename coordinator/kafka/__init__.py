"""The second front door: Kafka's wire protocol over the same core, for clients that nobody here wrote."""
