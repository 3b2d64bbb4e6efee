"""Checks on the shape of a request: what no rule of the protocol would ever accept, whatever the group's state.

Refusals of the protocol (unknown member, empty group id, session timeout out of bounds, ...) are the core's.
Every check raises MalformedRequest with the field, its value and what was expected.
"""

from collections.abc import Hashable, Iterable

from muster.coordinator.edge.limits import (
    MAX_ENTRIES,
    MAX_LEADER_STATE_CHARS,
    MAX_METADATA_CHARS,
    MAX_NAME_CHARS,
    MAX_REASON_CHARS,
    MAX_SHORT_ENTRIES,
    describe_too_long,
    describe_too_many,
)

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
