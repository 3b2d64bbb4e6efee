"""What talks to the upstream Kafka: a client of its wire protocol, no more of it than the engine needs.

protocol.py     which APIs in which versions
reach.py        how the upstream is reached: addresses, TLS, login
line.py         one connection: what is asked in the versions agreed on, and until when
connection.py     how a connection begins: versions, then who we are
lines.py        connections by broker and by purpose, with back-off
view.py         what is known of brokers and leaders. Pure
upstream_client.py     asks a broker, a leader, a coordinator; learns who they are
records.py      produce, fetch, offsets
topics.py       topics and their settings
catalog.py      all topics, and which of them a broker does not know
record_requests.py    producer ids, and the transactions of clients
groups.py       groups that the upstream coordinates: who is in them, and what they have committed
group_requests.py   the requests of a member of a classic group
"""
