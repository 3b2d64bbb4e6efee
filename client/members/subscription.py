"""What a classic member offers its group: subscription metadata (ConsumerProtocol) and the rebalance protocol in use.

`Subscriber` writes the metadata and reads the assignment. With the eager protocol a member gives up all partitions
before it joins; with the cooperative protocol (KIP-429) it keeps working, gives up only the partitions that move, and
then joins once more. A member uses the highest protocol that all of its assignors support. Metadata that cannot be
parsed counts as a subscription without topics.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.assignors.api import RebalanceProtocol, TopicPartition
from muster.assignors.data.consumer_protocol import (
    NEWEST,
    Subscription,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
    parse_assignment,
    parse_subscription,
)
from muster.client.members.member_types import NO_GENERATION, OfferedProtocol, Partitions

# How a new assignment takes effect
# ---------------------------------


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


# Eager protocol
# --------------


class EagerProtocol:
    """Give up all before joining; take what comes.

    >>> EagerProtocol().before_join({("t", 1), ("t", 0)}, {"t"})
    (('t', 0), ('t', 1))
    >>> EagerProtocol().after_sync((), {("t", 1)}).added
    (('t', 1),)
    """

    def before_join(self, owned: Collection[TopicPartition], topics: Collection[str]) -> Partitions:
        return tuple(sorted(owned))

    def after_sync(self, owned: Collection[TopicPartition], assigned: Collection[TopicPartition]) -> AssignmentChange:
        assert not owned, "an eager member owns nothing while it waits for its share"
        return AssignmentChange(revoked=(), added=tuple(sorted(assigned)), rejoin=False)


# Cooperative protocol (KIP-429)
# ------------------------------


class CooperativeProtocol:
    """Give up before joining only what is not subscribed to any more; after it, only what went elsewhere.

    >>> CooperativeProtocol().before_join({("gone", 0), ("t", 0)}, {"t"})
    (('gone', 0),)
    >>> CooperativeProtocol().after_sync({("t", 0), ("t", 1)}, {("t", 1), ("t", 2)})
    AssignmentChange(revoked=(('t', 0),), added=(('t', 2),), rejoin=True)
    """

    def before_join(self, owned: Collection[TopicPartition], topics: Collection[str]) -> Partitions:
        return tuple(sorted(tp for tp in owned if tp[0] not in topics))

    def after_sync(self, owned: Collection[TopicPartition], assigned: Collection[TopicPartition]) -> AssignmentChange:
        before, after = set(owned), set(assigned)
        revoked = tuple(sorted(before - after))
        # Its next owner is waiting: the plan withheld it until this member has let go.
        return AssignmentChange(revoked=revoked, added=tuple(sorted(after - before)), rejoin=bool(revoked))


# Subscription
# ------------


class NamedAssignor(Protocol):
    """As much of an assignor as a member has to know; the plan itself is made at the edge."""

    @property
    def name(self) -> str: ...

    @property
    def protocol(self) -> RebalanceProtocol: ...


class Subscriber:
    """The subscription of one member, with what it remembers of its last share."""

    def __init__(self, topics: Iterable[str], assignors: Sequence[NamedAssignor], rack: str | None = None) -> None:
        self.topics: tuple[str, ...] = tuple(sorted(set(topics)))
        self.assignors = tuple(assignors)
        self.protocol = choose_rebalance_protocol(assignors)
        self.handover: HandoverProtocol = (
            EagerProtocol() if self.protocol is RebalanceProtocol.EAGER else CooperativeProtocol()
        )
        self._rack = rack or None
        self._last_share: Mapping[str, Sequence[int]] = {}
        self._last_generation = NO_GENERATION

    def offered(self, owned: Collection[TopicPartition], generation: int) -> tuple[OfferedProtocol, ...]:
        """Each assignor with the subscription it reads, in order of preference."""
        claims = group_by_topic(owned)
        return tuple(
            OfferedProtocol(
                assignor.name,
                encode_subscription(
                    Subscription(
                        NEWEST, self.topics, self._user_data(assignor.name, generation), claims, generation, self._rack
                    )
                ),
            )
            for assignor in self.assignors
        )

    def read_share(self, assignment: bytes) -> set[TopicPartition]:
        """The partitions in an assignment; ValueError when the bytes are not one."""
        shares = parse_assignment(assignment).partitions
        return {(topic, partition) for topic, partitions in shares.items() for partition in partitions}

    @property
    def completed_generation(self) -> int:
        """The last generation in which this member took its share."""
        return self._last_generation

    def rejoin_after_ms(self, assignment: bytes) -> int:
        """How long after taking this share the member has to join again, 0: not of itself (only KIP-415 does)."""
        return 0

    def remember(self, share: Collection[TopicPartition], generation: int) -> None:
        """The eager sticky assignor wants to know what a member had before it gave everything up."""
        self._last_share, self._last_generation = group_by_topic(share), generation

    def _user_data(self, name: str, generation: int) -> bytes | None:
        if name == "sticky" and self._last_generation != NO_GENERATION:
            return encode_sticky_user_data(self._last_share, self._last_generation)
        if name == "cooperative-sticky":
            return encode_cooperative_user_data(generation)
        return None


def choose_rebalance_protocol(assignors: Sequence[NamedAssignor]) -> RebalanceProtocol:
    """The highest protocol that all listed assignors support; every assignor supports the eager one.

    So a list with one eager assignor is eager: moving a group over takes two rolling restarts, one that adds the
    cooperative assignor and one that drops the eager one (KIP-429).
    """
    if not assignors:
        raise ValueError("a member needs at least one assignor; partition.assignment.strategy lists none")
    cooperative = all(assignor.protocol is RebalanceProtocol.COOPERATIVE for assignor in assignors)
    return RebalanceProtocol.COOPERATIVE if cooperative else RebalanceProtocol.EAGER


def group_by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    """
    >>> group_by_topic([("t", 2), ("s", 0), ("t", 1)])
    {'s': [0], 't': [1, 2]}
    """
    shares: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        shares.setdefault(topic, []).append(partition)
    return shares


def parse_topics(metadata: bytes) -> tuple[str, ...]:
    """The topics of another member's subscription; none when it cannot be read, which its owner will hear of."""
    try:
        return parse_subscription(metadata).topics
    except ValueError:
        return ()
