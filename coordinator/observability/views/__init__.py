"""What a node answers as people and programs read it: words, and plain values for JSON. Pure; no transport.

A row is a plain dict that `json` takes as it is; its `TypedDict` says which keys it has. Rows of groups are
made of the values of `read_model.groups`.
"""
