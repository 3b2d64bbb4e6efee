"""Kafka's door over an upstream: every address that a client learns is a Muster node's, so that all it says passes one.

allowed_apis.py      which APIs and versions are told, and what is done with each (KB-X5)
beginnings.py   what is read of a request that passes
places.py       where clients find the upstream's brokers, and Muster's nodes (KB-X3, KB-X4)
response_rewriting.py    answers of the upstream, with these places in them
request_splitting.py         which groups are Muster's
request_splitting.py    requests that name groups of both, cut apart, and their answers joined (KB-X2)
group_answers.py    what a broker's port says of groups of ours, and who coordinates them
broker_connection.py          the half of a connection that leads to the upstream
client_connection.py      the half of its client
ports.py        the ports that are listened on (KB-X6)
names.py        or names, which clients ask for in their TLS handshakes
"""
