"""Groups of the central design: the coordinator stops, assigns and starts its members (docs/protocol/central.md)."""
