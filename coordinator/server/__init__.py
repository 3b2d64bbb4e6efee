"""The gRPC edge of the node."""
