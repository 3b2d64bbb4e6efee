"""The rules of the group side: pure, no clock, no I/O."""
