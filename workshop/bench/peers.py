"""Other Python clients' assignors, called as their own consumers call them; only where they are installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from muster.assignors.api import Snapshot
from muster.assignors.data.consumer_protocol import Subscription, encode_subscription

_CLASSES = {
    "range": ("range", "RangePartitionAssignor"),
    "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
    "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
}


@dataclass(frozen=True, slots=True)
class PeerAssignor:
    """One assignor of another client."""

    name: str
    decode: Callable[[bytes], Any]
    assign: Callable[[Any, list[SimpleNamespace]], Any]

    def on_objects(self, snapshot: Snapshot) -> Callable[[], object]:
        """Its decision on decoded subscriptions."""
        cluster = _PeerCluster(snapshot)
        members = [_member(word, self.decode(blob)) for word, blob in _blobs(snapshot)]
        return lambda: self.assign(cluster, members)

    def on_bytes(self, snapshot: Snapshot) -> Callable[[], object]:
        """Decode, decide, encode."""
        cluster, blobs = _PeerCluster(snapshot), _blobs(snapshot)

        def work() -> object:
            answer = self.assign(cluster, [_member(word, self.decode(blob)) for word, blob in blobs])
            return {word: share.encode() for word, share in answer.items()}

        return work


def find_peers(word: str) -> list[PeerAssignor]:
    """The installed peers that have an assignor of this name."""
    if word not in _CLASSES:
        return []
    found: list[PeerAssignor] = []
    for package, label, make in (("kafka", "kafka-python", _kafka_python), ("aiokafka", "aiokafka", _aiokafka)):
        module, cls = _CLASSES[word]
        try:
            assignors = importlib.import_module(f"{package}.coordinator.assignors.{module}")
            found.append(make(label, getattr(assignors, cls)))
        except (ImportError, AttributeError):
            continue  # Not installed, or another version with other names: no peer, no row.
    return found


def _kafka_python(label: str, cls: Any) -> PeerAssignor:
    wire = importlib.import_module("kafka.coordinator.assignors.abstract")
    return PeerAssignor(
        label, wire.ConsumerProtocolSubscription.decode, lambda cluster, members: _maker(cls).assign(cluster, members)
    )


def _aiokafka(label: str, cls: Any) -> PeerAssignor:
    wire = importlib.import_module("aiokafka.coordinator.protocol")

    def assign(cluster: Any, members: list[SimpleNamespace]) -> Any:
        return _maker(cls).assign(cluster, {member.member_id: member.metadata for member in members})

    return PeerAssignor(label, wire.ConsumerProtocolMemberMetadata.decode, assign)


def _maker(cls: Any) -> Any:
    """Assignors with state are made anew for each decision, the others are classes of class methods."""
    try:
        return cls()
    except TypeError:
        return cls


class _PeerCluster:
    """As much of a client's cluster metadata as assignors ask for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._partitions = {topic: set(range(count)) for topic, count in snapshot.topics.items()}

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._partitions.get(topic)


def _member(word: str, metadata: Any) -> SimpleNamespace:
    return SimpleNamespace(member_id=word, group_instance_id=None, metadata=metadata)


def _blobs(snapshot: Snapshot) -> list[tuple[str, bytes]]:
    return [(m.id, encode_subscription(Subscription(0, m.topics, b""))) for m in snapshot.members]
