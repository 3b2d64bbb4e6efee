"""The facts of a central group: who owns what, all of it in one record, so that a crash leaves the whole old or new."""

from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.core.model.types import Partitions


@dataclass(frozen=True, slots=True)
class CentralOwner:
    """A member of the last assignment, with the share it was given: enough to wait for it after a failover."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    regex: str
    share: tuple[tuple[str, Partitions], ...]


@dataclass(frozen=True, slots=True)
class CentralStored:
    """The ownership that holds from this generation on. Without owners: the group is there, and nobody is in it."""

    group_id: str
    generation: int
    assignor: str
    timestamp_ms: int
    owners: tuple[CentralOwner, ...] = ()


@dataclass(frozen=True, slots=True)
class CentralDeleted:
    """The group is gone, or is one of another kind from here on."""

    group_id: str


CentralRecord: TypeAlias = CentralStored | CentralDeleted
