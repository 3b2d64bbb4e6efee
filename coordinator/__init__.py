"""Consumer-group coordination: the core, its runtime, its edges."""
