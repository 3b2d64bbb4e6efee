"""Who a client is: the upstream decides, Muster takes the name from what both say (KB-X10). Or it has shown the node a
certificate, and comes to the upstream by credentials of the node's.

names.py      which name an exchange is about, and from when on it counts. Pure
relaying.py   the desk of one connection, which asks its broker
certified.py  a connection of a client with a certificate
principal.py  whether those as whom such clients come there may do too much
"""
