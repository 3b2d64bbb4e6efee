"""What Kafka's messages consist of, as data: all that this node reads or writes, in the versions it serves."""

from functools import cache

from muster.coordinator.kafka.schema import connection, groups, logs, security
from muster.coordinator.kafka.schema.notation import Message, read


@cache
def messages() -> dict[str, Message]:
    """All messages by name, such as `HeartbeatRequest`; read once, when the first is asked for."""
    return {message.name: message for part in (connection, groups, logs, security) for message in read(part.FIELDS)}
