"""What members on session streams cost a node."""
