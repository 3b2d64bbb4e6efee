"""How much one request may list, and how long a name may be: one table for gRPC's door and Kafka's.

A list is known by its field's name, whatever the request; its entries are added up over the whole request, so that
100,000 partitions are the same load under one topic as under 50,000. Both doors count before they build anything.
"""

from typing import Final

from muster.storage.shape import MAX_ENTRIES as MOST_OF_THE_LOG

MAX_NAME_CHARS: Final = 4_096
"""Longest id or name. In UTF-8, with a uuid appended, it still fits the 32,767 bytes of a stored string."""

MAX_ENTRIES: Final = MOST_OF_THE_LOG
"""Tools ask about all groups, topics or partitions that they found at once."""

MAX_SHORT_ENTRIES: Final = 100
"""Of what a member or a tool names by hand: protocols, assignors, filters."""

MAX_ADMIN_ENTRIES: Final = 10_000
"""Of what an administrator sets at once: entries of access control lists, quotas. KRaft takes no more, either."""

MAX_MEDIUM_ENTRIES: Final = 1_000
"""Users, asked about or altered by name; words of members that share a stream."""

LONG_LISTS: Final = frozenset(
    {
        *("groups", "groups_names", "group_ids", "coordinator_keys"),
        *("members", "assignments", "add_members", "remove_members"),
        *("topics", "topic_names", "names", "subscribed_topic_names", "topic_data", "topic_partitions"),
        *("forgotten_topics_data", "resources", "configs", "configuration_keys", "unset"),
        *("partitions", "partition_indexes", "partition_data", "fetches", "owned", "offsets", "broker_ids"),
        *("transactional_ids", "attempts", "logs", "principals", "token_ids", "entity", "ops"),
        *("offline", "new_isr_with_epochs", "replicas"),
    }
)
"""Lists of up to MAX_ENTRIES."""

ADMIN_LISTS: Final = frozenset({"creations", "entries", "changes"})
"""Lists of up to MAX_ACTS."""

MEDIUM_LISTS: Final = frozenset({"users", "upsertions", "deletions", "elections", "requests"})
"""Lists of up to MAX_SOME."""

SHORT_LISTS: Final = frozenset(
    {
        "protocols",
        "assignors",
        "states_filter",
        "types_filter",
        "resource_types",
        "set",
        "scalerMetadata",
        "guards",
        *("filters", "components"),
    }
)
"""Lists of up to MAX_FEW."""

MAX_REASON_CHARS: Final = MAX_NAME_CHARS
"""Longest reason that a member or an operator gives."""

MAX_METADATA_CHARS: Final = 1 << 20
"""Of a committed offset: far above `offset.metadata.max.bytes`, whose refusal belongs to the core."""

MAX_LEADER_STATE_CHARS: Final = 16 << 20
"""Far above `group.ledger.max.snapshot.bytes`, beyond which the core does not keep it."""

MAX_SETTING_CHARS: Final = 64 << 10
"""Longest text of one setting of a group."""

LARGE_BYTES: Final = 1 << 16
"""A request below this size cannot list enough to harm anybody, and is counted once it is read."""

MAX_STRAY_FIELDS: Final = 16
"""So many more fields than it knows may come in one message: those of later versions, and some twice."""


def max_entries(path: str) -> int:
    """The most entries of the list at this path, such as `OffsetFetchRequest.groups.topics`, in one request.

    Raises LookupError for a list that the table does not have.
    """
    name = path.rpartition(".")[2]
    if name in LONG_LISTS:
        return MAX_ENTRIES
    if name in ADMIN_LISTS:
        return MAX_ADMIN_ENTRIES
    if name in MEDIUM_LISTS:
        return MAX_MEDIUM_ENTRIES
    if name in SHORT_LISTS:
        return MAX_SHORT_ENTRIES
    raise LookupError(f"{path} is in no table of limits; add {name!r} to coordinator/edge/limits.py")


def describe_too_many(field: str, count: int, limit: int, *, counted: bool = True) -> str:
    """The refusal of a list, for any door. `counted`: to its end, rather than to where it was too long."""
    what = f"{count} entries" if counted else f"{count} entries or more"
    return f"{field} has {what}; at most {limit} are accepted in one request"


def describe_too_long(field: str, length: int, limit: int = MAX_NAME_CHARS) -> str:
    """The refusal of a name, for any door."""
    return f"{field} has {length} characters; at most {limit} are accepted"


def describe_too_large(message: str, size: int, limit: int) -> str:
    """The refusal of a request by its size alone."""
    return f"{message} has {size} bytes; at most {limit} are accepted"
