"""A cluster of gRPC nodes that does as a test says: `cluster` is what tests use, `node` and `groups` its parts."""
