"""The gRPC client: Consumer, Producer, Admin and Worker."""
