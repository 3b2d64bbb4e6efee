"""What Kafka's messages consist of, as data: all that this node reads or writes, in the versions it serves."""

from functools import cache

from muster.coordinator.kafka.codec.notation import MessageSchema, parse_messages
from muster.coordinator.kafka.codec.schema import admin, connection, groups, logs, nodes, quotas, security, transactions


@cache
def all_messages() -> dict[str, MessageSchema]:
    """All messages by name, such as `HeartbeatRequest`; read once, when the first is asked for."""
    parts = (admin, connection, groups, logs, security, quotas, nodes, transactions)
    return {message.name: message for part in parts for message in parse_messages(part.FIELDS)}
