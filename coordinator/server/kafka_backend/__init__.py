"""A node whose state is in somebody's Kafka. Imported with `engine` set to one, and not before.

ground.py    in place of a data directory: start checks, and what such a node has not
backend.py      the node's part in its upstream, put together, begun and ended in order
listener.py     the engine: what it refuses unread
draining.py  what an operator says to a node of many
logs.py      the upstream's topics, where a node on its own has its log
records.py   the Broker service: topics and offsets are told, records are read and written elsewhere
grpc_services.py  what needs a log of the node's own
watching.py  what an operator hears: lines, conditions
"""
