"""Bounds and kinds of value that several rooms share."""

from typing import NewType

from assignors.registry import resolve_all

MAX_INT = 2**31 - 1
DAY_MS = 86_400_000

AssignorNames = NewType("AssignorNames", str)
"""Separated by commas."""


def known_assignors(names: AssignorNames) -> AssignorNames:
    """The names again. Raises ValueError when one is no assignor."""
    resolve_all(names)
    return names


def words_of(names: AssignorNames) -> tuple[str, ...]:
    return tuple(word.strip() for word in names.split(",") if word.strip())
