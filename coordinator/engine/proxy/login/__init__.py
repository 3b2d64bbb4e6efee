"""Who a client is: the upstream decides, Muster takes the name from what both say (X10).

names.py      which name an exchange is about, and from when on it counts. Pure
relaying.py   the desk of one connection, which asks its broker
"""
