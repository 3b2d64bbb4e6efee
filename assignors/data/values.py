"""The plain values that decisions are made of, below everything else here: arrays, claims and text know no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the group.

    `owned` is what it claims to own ({topic: partitions}); None means that it reports nothing, as a
    brand-new member does. A claim counts from `generation`; -1 is "none".
    """

    id: str
    topics: tuple[str, ...]
    owned: Mapping[str, Sequence[int]] | None = None
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes = b""


class SnapshotValues(Protocol):
    """What a `Snapshot` holds, for those who only read it. Field by field as there."""

    @property
    def topics(self) -> Mapping[str, int]: ...

    @property
    def members(self) -> Sequence[Member]: ...

    @property
    def lags(self) -> Mapping[str, Sequence[int]] | None: ...

    @property
    def racks(self) -> Mapping[str, Sequence[Sequence[str]]] | None: ...

    @property
    def assignor(self) -> str: ...

    @property
    def options(self) -> Mapping[str, JsonValue]: ...

    @property
    def stale(self) -> Mapping[str, Sequence[int]]: ...
