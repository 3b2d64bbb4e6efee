"""What `muster bench wire` measures: Kafka's wire protocol, against librdkafka's mock cluster and our own gRPC door."""
