"""Eager, static and cooperative groups: one server protocol."""
