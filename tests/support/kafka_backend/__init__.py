"""Groups whose state is in somebody's Kafka, for tests."""
