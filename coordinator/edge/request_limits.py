"""Limits on the shape of one request, and the sentences with which every listener refuses it.

How many entries a list may have is looked up by its field's name, whatever the request, and entries are added up over
the whole request: 100,000 partitions are the same load under one topic as under 50,000. gRPC and Kafka's listener use
one table, and both count before they build anything. The checks of single fields raise MalformedRequest, which begins
with the field and names its value and the expectation; refusals that depend on a group's state (unknown member,
session timeout out of bounds) belong to the core.
"""

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from muster.assignors.api import JsonValue
from muster.coordinator.errors import ErrorCode
from muster.storage.errors import MAX_ENTRIES as MOST_OF_THE_LOG

MAX_NAME_CHARS: Final = 4_096
"""Longest id or name. In UTF-8, with a uuid appended, it still fits the 32,767 bytes of a stored string."""

MAX_ENTRIES: Final = MOST_OF_THE_LOG
"""Tools ask about all groups, topics or partitions that they found at once."""

MAX_SHORT_ENTRIES: Final = 100
"""Of what a member or a tool names by hand: protocols, assignors, filters."""

MAX_ADMIN_ENTRIES: Final = 10_000
"""Of what an administrator sets at once: entries of access control lists, quotas. KRaft takes no more, either."""

MAX_MEDIUM_ENTRIES: Final = 1_000
"""Users, asked about or altered by name; words of members that share a stream; transactions that another node asks
about, or ends."""

LONG_LISTS: Final = frozenset(
    {
        *("groups", "groups_names", "group_ids", "coordinator_keys"),
        *("members", "assignments", "add_members", "remove_members"),
        *("topics", "topic_names", "names", "subscribed_topic_names", "topic_data", "topic_partitions"),
        *("forgotten_topics_data", "resources", "configs", "configuration_keys", "unset"),
        *("partitions", "partition_indexes", "partition_data", "fetches", "owned", "offsets", "broker_ids"),
        *(
            "transactional_ids",
            "producer_ids",
            "attempts",
            "logs",
            "principals",
            "producer_id_filters",
            "token_ids",
            "entity",
            "ops",
        ),
        *("offline", "new_isr_with_epochs", "replicas"),
    }
)
"""Lists of up to MAX_ENTRIES."""

ADMIN_LISTS: Final = frozenset({"creations", "entries", "changes"})
"""Lists of up to MAX_ACTS."""

MEDIUM_LISTS: Final = frozenset(
    {"users", "upsertions", "deletions", "elections", "requests", "transactions", "markers"}
)
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
        *("filters", "components", "state_filters", "states"),
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
    raise LookupError(f"{path} is in no table of limits; add {name!r} to coordinator/edge/request_limits.py")


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


GROUP_KEYS: Final = ("", "group")
TRANSACTION_KEY: Final = "transaction"
"""What FindCoordinator's `key_type` may be."""

# Sentences
# ---------


def error_sentence(code: ErrorCode, message: str = "") -> str:
    """What the client reads beside the number; empty without an error."""
    return "" if code is ErrorCode.NONE else message or code.meaning


def describe_failure(reference: str) -> str:
    """What is told of an unexpected failure: a reference into the node's log, and nothing of the inside."""
    return f"the node failed unexpectedly; its log has the details under reference {reference}"


def name_operator(host: str, reason: str = "") -> str:
    """Whoever changed a group from outside, as the ledger names him.

    >>> name_operator("10.0.0.7"), name_operator("10.0.0.7", "a stuck worker")
    ('operator at 10.0.0.7', 'operator at 10.0.0.7 (a stuck worker)')
    """
    return f"operator at {host} ({reason})" if reason else f"operator at {host}"


def parse_json_setting(name: str, text: str, refusal: Callable[[str], Exception]) -> JsonValue:
    """The value of a setting that came as JSON. Raises what `refusal` makes of the words if it is too long, or none."""
    if len(text) > MAX_SETTING_CHARS:
        raise refusal(describe_too_long(name, len(text), MAX_SETTING_CHARS))
    try:
        found: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{name} is not JSON ({error}); expected a JSON value, such as {{}}") from None
    return found


# Checks of fields
# ----------------

MAX_PROTOCOLS = MAX_FILTERS = MAX_SETTINGS = MAX_SHORT_ENTRIES
MAX_MEMBERS = MAX_PARTITIONS = MAX_GROUPS = MAX_TOPICS = MAX_ENTRIES
SHOWN_CHARS = 60


class MalformedGroupRequest(ValueError):
    """The request breaks its own shape. The text begins with the field, and names its value and the expectation."""

    @property
    def field(self) -> str:
        return str(self).partition(" ")[0]


def check_name(field: str, value: str) -> str:
    """Return `value` if it is short enough to be an id or a name; empty is allowed."""
    return check_length(field, value, MAX_NAME_CHARS)


def check_length(field: str, value: str, most: int) -> str:
    """Return `value` if it has at most so many characters."""
    if len(value) > most:
        raise MalformedGroupRequest(describe_too_long(field, len(value), most))
    return value


def check_filled_name(field: str, value: str) -> str:
    """Return `value` if it is a name of at least one character."""
    if not value:
        raise MalformedGroupRequest(f"{field} is empty; it needs at least one character")
    return check_name(field, value)


def check_instance_id(field: str, present: bool, value: str) -> str | None:
    """Return the group instance id, None when the client set none."""
    if not present:
        return None
    if not value:
        raise MalformedGroupRequest(f"{field} is set but empty; leave it out for a dynamic member, or give it a name")
    return check_name(field, value)


def check_leader_state(field: str, value: str) -> str:
    return check_length(field, value, MAX_LEADER_STATE_CHARS)


def check_metadata(field: str, value: str) -> str:
    return check_length(field, value, MAX_METADATA_CHARS)


def check_reason(field: str, value: str) -> str:
    return check_length(field, value, MAX_REASON_CHARS)


def check_at_least(field: str, value: int, lowest: int) -> int:
    """Return `value` if it is `lowest` or more."""
    if value < lowest:
        raise MalformedGroupRequest(f"{field} is {value}; expected {lowest} or more")
    return value


def check_at_most(field: str, count: int, highest: int) -> None:
    """Accept a list of up to `highest` elements."""
    if count > highest:
        raise MalformedGroupRequest(describe_too_many(field, count, highest))


def check_distinct(field: str, values: Iterable[Hashable]) -> None:
    """Refuse a list that names the same thing twice."""
    seen: set[Hashable] = set()
    for value in values:
        if value in seen:
            raise MalformedGroupRequest(f"{field} names {quote_value(value)} twice; name each once")
        seen.add(value)


def quote_value(value: object) -> str:
    """The value as a sentence may quote it: short, whatever the client sent."""
    text = "-".join(map(str, value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."
