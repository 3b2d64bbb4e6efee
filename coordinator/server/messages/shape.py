"""Checks on the shape of a request: what no rule of the protocol would ever accept, whatever the group's state.

Refusals of the protocol (unknown member, empty group id, session timeout out of bounds, ...) are the core's.
Every check raises MalformedRequest with the field, its value and what was expected.
"""

from collections.abc import Hashable, Iterable

from muster.coordinator.edge.limits import (
    MAX_ENTRIES,
    MAX_FEW,
    MAX_LEADER_STATE_CHARS,
    MAX_METADATA_CHARS,
    MAX_NAME_CHARS,
    MAX_REASON_CHARS,
    too_long,
    too_many,
)

MAX_PROTOCOLS = MAX_FILTERS = MAX_SETTINGS = MAX_FEW
MAX_MEMBERS = MAX_PARTITIONS = MAX_GROUPS = MAX_TOPICS = MAX_ENTRIES
SHOWN_CHARS = 60


class MalformedRequest(ValueError):
    """The request breaks its own shape. The text begins with the field, and names its value and the expectation."""

    @property
    def field(self) -> str:
        return str(self).partition(" ")[0]


def name(field: str, value: str) -> str:
    """Return `value` if it is short enough to be an id or a name; empty is allowed."""
    return text(field, value, MAX_NAME_CHARS)


def text(field: str, value: str, most: int) -> str:
    """Return `value` if it has at most so many characters."""
    if len(value) > most:
        raise MalformedRequest(too_long(field, len(value), most))
    return value


def filled(field: str, value: str) -> str:
    """Return `value` if it is a name of at least one character."""
    if not value:
        raise MalformedRequest(f"{field} is empty; it needs at least one character")
    return name(field, value)


def instance_id(field: str, present: bool, value: str) -> str | None:
    """Return the group instance id, None when the client set none."""
    if not present:
        return None
    if not value:
        raise MalformedRequest(f"{field} is set but empty; leave it out for a dynamic member, or give it a name")
    return name(field, value)


def leader_state(field: str, value: str) -> str:
    return text(field, value, MAX_LEADER_STATE_CHARS)


def metadata(field: str, value: str) -> str:
    return text(field, value, MAX_METADATA_CHARS)


def reason(field: str, value: str) -> str:
    return text(field, value, MAX_REASON_CHARS)


def at_least(field: str, value: int, lowest: int) -> int:
    """Return `value` if it is `lowest` or more."""
    if value < lowest:
        raise MalformedRequest(f"{field} is {value}; expected {lowest} or more")
    return value


def at_most(field: str, count: int, highest: int) -> None:
    """Accept a list of up to `highest` elements."""
    if count > highest:
        raise MalformedRequest(too_many(field, count, highest))


def distinct(field: str, values: Iterable[Hashable]) -> None:
    """Refuse a list that names the same thing twice."""
    seen: set[Hashable] = set()
    for value in values:
        if value in seen:
            raise MalformedRequest(f"{field} names {shown(value)} twice; name each once")
        seen.add(value)


def shown(value: object) -> str:
    """The value as a sentence may quote it: short, whatever the client sent."""
    text = "-".join(map(str, value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."
