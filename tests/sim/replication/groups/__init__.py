"""Groups on a simulated cluster: the real engine and shards of each node, and members that follow coordinators."""
