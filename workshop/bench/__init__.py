"""What `muster bench assignors` measures."""
