"""Quotas at Kafka's door: what is set, what is charged for, how a connection is held."""
