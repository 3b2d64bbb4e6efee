"""What a node counts, and how it is written for Prometheus. `table.py` has every name; nothing here does I/O.

`instruments.py` is what the doors and the driver count in: they are given one, or None when nobody will ever ask.
`scrape.py` writes a whole answer in slices.
"""
