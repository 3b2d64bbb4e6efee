"""Doors of a node beside gRPC's: Kafka's, HTTP's, KEDA's."""
