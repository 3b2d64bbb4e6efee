"""How a client knows its node, and shows who it is. Not imported by clients that do neither."""
