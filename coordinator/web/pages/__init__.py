"""The page: what it shows, from the node's own answers to plain values to HTML. Routes are in `routes.py`."""
