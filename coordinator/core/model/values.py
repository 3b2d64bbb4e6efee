"""What is held, as hard facts: small values, one record for each group."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from muster.coordinator.core.model.types import Partitions
from muster.coordinator.core.model.value import frozen_value

Share: TypeAlias = tuple[tuple[str, Partitions], ...]
"""Topic and partitions, by topic."""

MeasuredRates: TypeAlias = Mapping[str, tuple[Sequence[float], Sequence[int]]]
"""Topic -> of each partition: records a second, written or read, whichever is more; and records that wait."""


class Orphans(Enum):
    """What becomes of partitions without a living owner while a group is frozen."""

    GIVE = "give"
    """They go to whoever has least."""
    KEEP = "keep"
    """They stay without one."""


class By(Enum):
    """How an operator names members."""

    MEMBER_ID = "member-id"
    CLIENT_ID = "client-id"
    INSTANCE = "instance"
    HOST = "host"
    ANY = "any"
    """Its instance id, its client id or its member id."""


@frozen_value
class MemberIdentifiers:
    """A member, by all its names."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str

    def is_named(self, by: By, name: str) -> bool:
        """
        >>> web = MemberIdentifiers("web-1-7f", None, "web-1", "10.0.0.7")
        >>> web.is_named(By.HOST, "10.0.0.7"), web.is_named(By.ANY, "10.0.0.7"), web.is_named(By.ANY, "web-1")
        (True, False, True)
        """
        match by:
            case By.MEMBER_ID:
                return name == self.member_id
            case By.CLIENT_ID:
                return name == self.client_id
            case By.INSTANCE:
                return name == self.instance_id
            case By.HOST:
                # Kafka's door shows hosts with a slash before them, as Kafka does.
                return name.lstrip("/") == self.client_host.lstrip("/")
            case By.ANY:
                return name in (self.member_id, self.client_id, self.instance_id)


@frozen_value
class Until:
    """An end by itself: when, on the coordinator's clock, and how long it was from the moment it was asked for.

    The clock may have been set back since; then it is so long from the time of loading.
    """

    at_ms: int
    after_ms: int


@frozen_value
class Freeze:
    """Nobody who lives loses a partition, and newcomers get none."""

    orphans: Orphans = Orphans.GIVE
    until: Until | None = None


@frozen_value
class Deploy:
    """Members are started anew one by one: what one leaves waits for the next that comes."""

    expect: int
    hold_ms: int
    back: int = 0
    """How many heirs have come."""
    until: Until | None = None


@frozen_value
class Drain:
    """Whoever is named so has no capacity: its partitions move away, and it stays."""

    by: By
    name: str
    until: Until | None = None


@frozen_value
class Pin:
    """This partition belongs to whoever is named so, as long as he lives."""

    topic: str
    partition: int
    name: str
    until: Until | None = None


@frozen_value
class HeldShare:
    """What a member left, waiting for an heir."""

    member_id: str
    client_id: str
    share: Share
    until: Until

    @property
    def size(self) -> int:
        return sum(len(partitions) for _, partitions in self.share)


@frozen_value
class HoldsStored:
    """All that is held of one group. `version` is the ledger's number of the last change by hand or by time."""

    group_id: str
    version: int = 0
    freeze: Freeze | None = None
    deploy: Deploy | None = None
    drains: tuple[Drain, ...] = ()
    pins: tuple[Pin, ...] = ()
    shares: tuple[HeldShare, ...] = ()

    @property
    def nothing(self) -> bool:
        return not (self.freeze or self.deploy or self.drains or self.pins or self.shares)

    @property
    def calm(self) -> bool:
        """Nobody who lives may lose a partition for now."""
        return bool(self.freeze or self.deploy or self.shares)


@frozen_value
class HoldsEnded:
    """The tombstone: nothing of the group is held any more."""

    group_id: str


HoldsRecord: TypeAlias = HoldsStored | HoldsEnded
