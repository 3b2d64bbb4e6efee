"""A simulated node's process: what comes in at its door, and what it does of its own accord."""
