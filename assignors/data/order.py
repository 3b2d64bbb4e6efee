"""Orders that Kafka's Java code sees: strings by UTF-16 code unit, static members first (KIP-345)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Ranked(Protocol):
    """What decides a member's place."""

    @property
    def id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...


_R = TypeVar("_R", bound=Ranked)


def in_java_order(words: Iterable[str]) -> list[str]:
    """Sorted as `String.compareTo` does: by UTF-16 code unit, not by code point.

    >>> in_java_order(["\\U0001f600", "\\uffee"]) == ["\\U0001f600", "\\uffee"]
    True
    """
    listed = list(words)
    # Up to U+D7FF the two orders agree, and nearly every name is ASCII.
    if "".join(listed).isascii():
        return sorted(listed)
    return sorted(listed, key=java_key)


def java_key(word: str) -> bytes:
    """A key that sorts as Java compares strings; lone surrogates are allowed, as they are in Java."""
    return word.encode("utf-16-be", "surrogatepass")


def in_kafka_order(members: Sequence[_R]) -> list[_R]:
    """Static members by group.instance.id, then dynamic ones by member id."""
    static = {member.instance_id: member for member in members if member.instance_id is not None}
    dynamic = {member.id: member for member in members if member.instance_id is None}
    if len(static) + len(dynamic) < len(members):
        return sorted(members, key=_member_key)  # An instance seen twice: the member id decides.
    return [static[word] for word in in_java_order(static)] + [dynamic[word] for word in in_java_order(dynamic)]


def _member_key(member: Ranked) -> tuple[bool, bytes, bytes]:
    rank = member.id if member.instance_id is None else member.instance_id
    return member.instance_id is None, java_key(rank), java_key(member.id)
