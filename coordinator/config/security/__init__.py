"""Settings of who may do what."""
