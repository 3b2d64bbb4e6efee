"""Doors of a node beside gRPC's: Kafka's and HTTP's."""
