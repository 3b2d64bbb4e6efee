"""Positions that a producer's transaction commits, or not: they count, or are forgotten, once its marker is there."""
