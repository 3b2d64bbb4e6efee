"""`muster doctor`: gathers facts of a running node, and prints what the rules find in them."""
