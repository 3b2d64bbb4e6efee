"""Records that are in somebody's Kafka (`muster serve --engine`): read and written there, by confluent-kafka.

Groups, positions and callbacks are as ever; no record passes a node. Imported where a node has said so, and not before.
"""
