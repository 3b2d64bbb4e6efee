"""What both doors of a node, gRPC's and Kafka's, ask of every request: limits, and the words in which they refuse."""
