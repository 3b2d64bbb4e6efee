"""Records that a broker keeps of its groups, written short: `"ann": "orders 0-2"` is a member with its share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerRecord,
    CurrentDeleted,
    CurrentStored,
    GroupEpochStored,
    GroupStored,
    MemberRecord,
    TargetDeleted,
    TargetEpochStored,
    TargetStored,
)
from muster.coordinator.core.model.types import RebalanceEntry
from muster.coordinator.core.watched.classic_history import ClassicHistory
from muster.coordinator.core.watched.consumer_history import ConsumerHistory

GROUP, HOST = "g", "/10.0.0.1"
SESSION_MS, POLL_MS = 45_000, 300_000
SECOND = 1_000

Share = Mapping[str, tuple[int, ...]]


def share_of(text: str) -> dict[str, tuple[int, ...]]:
    """
    >>> share_of("orders 0-2, clicks 4")
    {'orders': (0, 1, 2), 'clicks': (4,)}
    """
    found = {}
    for part in filter(None, text.split(", ")):
        topic, _, numbers = part.partition(" ")
        first, _, last = numbers.partition("-")
        found[topic] = tuple(range(int(first), int(last or first) + 1))
    return found


@dataclass
class ClassicStory:
    """Generations and commits of one group, in seconds since it began.

    topics: that all members subscribe to, unless `subscribed` names others. A member's client id is its id up to the
    dash: `bob-1` and `bob-2` are two ids of bob's.
    """

    topics: tuple[str, ...] = ("orders",)
    protocol: str = "range"
    session_ms: int = SESSION_MS
    poll_ms: int = POLL_MS
    instances: dict[str, str] = field(default_factory=dict)
    history: ClassicHistory = field(default_factory=lambda: ClassicHistory(GROUP))
    number: int = 0

    def generation(
        self,
        at_s: float,
        shares: Mapping[str, str],
        *,
        subscribed: Mapping[str, tuple[str, ...]] | None = None,
        owned: Mapping[str, str] | None = None,
        claims: Mapping[str, int] | None = None,
        hosts: Mapping[str, str] | None = None,
        protocol: str = "",
        again: bool = False,
        leader_epoch: int = 0,
    ) -> RebalanceEntry | None:
        """again: the record is of the generation before."""
        self.number += not again
        wanted, owns, says = subscribed or {}, owned or {}, claims or {}
        members = []
        for member_id, share in shares.items():
            topics = wanted.get(member_id, self.topics)
            held = share_of(owns.get(member_id, ""))
            subscription = Subscription(3, topics, None, held, says.get(member_id, -1), None)
            members.append(
                MemberRecord(
                    member_id,
                    self.instances.get(member_id),
                    member_id.partition("-")[0],
                    (hosts or {}).get(member_id, HOST),
                    self.poll_ms,
                    self.session_ms,
                    encode_subscription(subscription),
                    encode_assignment(share_of(share)),
                )
            )
        stored = GroupStored(
            GROUP,
            CONSUMER,
            self.number,
            (protocol or self.protocol) if members else None,
            next(iter(shares), None),
            0,
            tuple(members),
        )
        return self.history.take_group(stored, ms(at_s), leader_epoch)

    def commits(self, share: str, from_s: float, to_s: float, every_s: float = 5.0) -> None:
        """Of all partitions of the share, one after the other, the last at `to_s`."""
        note_commits(self.history, share, from_s, to_s, every_s)


TOPIC_IDS = {"orders": b"o" * 16, "clicks": b"c" * 16}


@dataclass
class ConsumerStory:
    """The same of a KIP-848 group."""

    session_ms: int | None = SESSION_MS
    history: ConsumerHistory = field(init=False)

    def __post_init__(self) -> None:
        names = {topic_id: topic for topic, topic_id in TOPIC_IDS.items()}
        self.history = ConsumerHistory(GROUP, names, self.session_ms)

    def take(self, at_s: float, *records: ConsumerRecord) -> list[RebalanceEntry]:
        return [entry for record in records for entry in self.history.take_record(record, ms(at_s))]

    def commits(self, share: str, from_s: float, to_s: float, every_s: float = 5.0) -> None:
        note_commits(self.history, share, from_s, to_s, every_s)

    def start(self, at_s: float, shares: Mapping[str, str], *, instances: Mapping[str, str] | None = None) -> None:
        """All of them have what they are to have, by epoch 1."""
        for name in shares:
            self.take(at_s, wants(name, instance=(instances or {}).get(name)))
        self.take(at_s, epoch(1))
        self.take(at_s, *(target(name, share) for name, share in shares.items()), TargetEpochStored(GROUP, 1, 0))
        self.take(at_s, *(has(name, share, 1) for name, share in shares.items()))


def note_commits(
    history: ClassicHistory | ConsumerHistory, share: str, from_s: float, to_s: float, every_s: float
) -> None:
    for topic, partitions in share_of(share).items():
        for partition in partitions:
            at_s, times = to_s, [to_s]
            while (at_s := at_s - every_s) >= from_s:
                times.append(at_s)
            for each in reversed(times):
                history.commits.note_commit((topic, partition), ms(each))


def ms(seconds: float) -> int:
    return round(seconds * SECOND)


def wants(
    name: str, topics: tuple[str, ...] = ("orders",), *, instance: str | None = None, poll_ms: int = POLL_MS
) -> ConsumerMemberStored:
    return ConsumerMemberStored(GROUP, name, instance, None, name.partition("-")[0], HOST, topics, None, poll_ms, None)


def epoch(number: int, metadata_hash: int = 7) -> GroupEpochStored:
    return GroupEpochStored(GROUP, number, metadata_hash)


def ids(share: str) -> dict[bytes, tuple[int, ...]]:
    return {TOPIC_IDS[topic]: partitions for topic, partitions in share_of(share).items()}


def target(name: str, share: str) -> TargetStored:
    return TargetStored(GROUP, name, {each: frozenset(numbers) for each, numbers in ids(share).items()})


def has(name: str, share: str, at_epoch: int, revoking: str = "") -> CurrentStored:
    def with_epochs(text: str) -> dict[bytes, dict[int, int]]:
        return {each: dict.fromkeys(numbers, at_epoch) for each, numbers in ids(text).items()}

    return CurrentStored(GROUP, name, at_epoch, at_epoch - 1, 0, with_epochs(share), with_epochs(revoking))


def gone(name: str) -> tuple[ConsumerRecord, ...]:
    return CurrentDeleted(GROUP, name), TargetDeleted(GROUP, name), ConsumerMemberDeleted(GROUP, name)
