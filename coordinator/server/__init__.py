"""The gRPC edge of a node: translation, dispatch, the driver of the engine, and the composition root."""
