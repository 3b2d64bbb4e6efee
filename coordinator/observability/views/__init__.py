"""What a node answers as people and programs read it: words, and plain values for JSON. Pure; no transport.

A row is a plain dict that `json` takes as it is; its `TypedDict` says which keys it has. Rows are made of values with
the names of `muster.client.described`, or of `group_answers.py`, which reads them from a node's own answers.
"""
