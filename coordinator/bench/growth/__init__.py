"""How memory and time grow with members, groups and partitions: `muster bench growth`."""
