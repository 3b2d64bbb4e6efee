"""How much one request may list, and how long a name may be. Above that it is refused before it is looked at.

Where an answer can say so it does; where it has no place for that, the connection ends (HangUp).
"""

from collections.abc import Sequence
from typing import TypeVar

from coordinator.errors import CoordinatorError, ErrorCode
from coordinator.kafka.dispatch import HangUp

Row = TypeVar("Row")

MAX_NAME_CHARS = 4_096
"""Longest id or name. In UTF-8, with a uuid appended, it still fits the 32,767 bytes of a stored string."""

MAX_GROUPS = 100_000
"""Tools ask about all groups that they found in a list at once."""

MAX_PROTOCOLS = 100
MAX_MEMBERS = 100_000
MAX_TOPICS = 100_000
MAX_PARTITIONS = 100_000


def short(field: str, value: str) -> str:
    """The value, if it can be stored. Raises CoordinatorError."""
    if len(value) > MAX_NAME_CHARS:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            f"{field} has {len(value)} characters; at most {MAX_NAME_CHARS} are accepted",
        )
    return value


def short_or_none(field: str, value: str | None) -> str | None:
    return None if value is None else short(field, value)


def few(field: str, rows: Sequence[Row], most: int) -> Sequence[Row]:
    """The rows, if they are no more than any group has. Raises CoordinatorError."""
    if len(rows) > most:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST, f"{field} has {len(rows)} entries; at most {most} are accepted in one request"
        )
    return rows


def asked_groups(names: Sequence[str]) -> list[str]:
    """Each group once, in the order asked. HangUp when they are too many: no answer says that some are left out."""
    once = list(dict.fromkeys(names))
    if len(once) > MAX_GROUPS:
        raise HangUp(f"a request names {len(once)} groups; at most {MAX_GROUPS} are taken")
    return once


def check_partition_count(total: int) -> None:
    """HangUp when one request names more partitions than any node has, so that it cannot hold up all others."""
    if total > MAX_PARTITIONS:
        raise HangUp(f"a request names {total} partitions; at most {MAX_PARTITIONS} are taken")
