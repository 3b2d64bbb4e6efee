"""Continuous balance: what a group's partitions carry, when a move pays, and when nothing moves (docs/control.md)."""
