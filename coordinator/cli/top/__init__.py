"""`muster top`: the groups of a node, live, in a terminal. `picture.py` and `board.py` are pure."""
