"""What one client's large request, or the node's own upkeep, does to everybody else's heartbeats; and a start."""
