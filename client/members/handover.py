"""How partitions change hands at a member: the seam between the eager and the cooperative way."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from muster.client.members.types import Partitions, TopicPartition


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """What a new assignment means for a member. `rejoin`: somebody waits for what was revoked."""

    revoked: Partitions
    added: Partitions
    rejoin: bool


class HandoverProtocol(Protocol):
    """What is revoked before a join, and what a new assignment changes. Pure."""

    def before_join(self, owned: Collection[TopicPartition], topics: Collection[str]) -> Partitions: ...

    def after_sync(
        self, owned: Collection[TopicPartition], assigned: Collection[TopicPartition]
    ) -> AssignmentChange: ...
