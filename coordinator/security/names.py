"""The quotas there are, and for which kinds of entities: Kafka's (KIP-546, KIP-599, KIP-612), and three of ours."""

from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
GROUP_COUNT: Final = "group_count"
MEMBER_COUNT: Final = "member_count"
TOPIC_COUNT: Final = "topic_count"

COUNT_QUOTAS: Final = frozenset({GROUP_COUNT, MEMBER_COUNT, TOPIC_COUNT})
"""How much a principal may have at once. They go by user alone, and 0 is a limit as well."""

WHOLE_NUMBERS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE}) | COUNT_QUOTAS
"""Those that are whole numbers; the others may have a fraction."""

CLIENT_QUOTAS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
USER_QUOTAS: Final = CLIENT_QUOTAS | COUNT_QUOTAS
IP_QUOTAS: Final = frozenset({CONNECTION_CREATION_RATE})

MEANINGS: Final = {
    PRODUCER_BYTE_RATE: "bytes per second that may be produced",
    CONSUMER_BYTE_RATE: "bytes per second that may be fetched",
    REQUEST_PERCENTAGE: "percent of one processor's time that requests may take",
    CONTROLLER_MUTATION_RATE: "partitions per second that may be created or deleted",
    CONNECTION_CREATION_RATE: "connections per second from an address",
    GROUP_COUNT: "groups that the user may have members in",
    TOPIC_COUNT: "topics that the user may have made",
    MEMBER_COUNT: "members of groups that the user may have",
}
