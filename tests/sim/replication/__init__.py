"""Many nodes, simulated."""
