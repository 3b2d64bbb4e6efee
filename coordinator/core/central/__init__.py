"""Groups of the central design: the coordinator stops, assigns and starts its members (no I/O, no clock)."""
