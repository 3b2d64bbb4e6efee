"""`muster demo --cluster`: three nodes, the one that coordinates is killed, and what its members notice of it."""
