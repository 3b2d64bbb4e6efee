"""The half of a node that may be the controller."""
