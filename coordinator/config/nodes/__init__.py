"""How nodes find each other, and keep copies for each other."""
