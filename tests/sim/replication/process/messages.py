"""What simulated nodes and clients ask each other for, beside what the machines have words for."""

from collections.abc import Callable
from typing import Any, NamedTuple

from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, TopicPartition
from muster.coordinator.replication.protocol.controller import events_and_effects


class Produce(NamedTuple):
    """A producer's batch for one partition, acks=all."""

    place: TopicPartition
    topic_id: bytes
    values: tuple[object, ...]


class Produced(NamedTuple):
    code: int
    offset: int = -1
    epoch: int = NO_EPOCH


class Consume(NamedTuple):
    place: TopicPartition
    topic_id: bytes
    offset: int


class Consumed(NamedTuple):
    code: int
    offset: int = -1
    values: tuple[object, ...] = ()
    epoch: int = NO_EPOCH


class Poll(NamedTuple):
    node: int
    node_epoch: int
    image: Any
    offline: tuple[events_and_effects.OfflineReplica, ...]


class Ask(NamedTuple):
    """AlterPartition, or what operators ask of the controller: made into an event once it has a request id."""

    make: Callable[[int], events_and_effects.ControllerEvent]


class Probing(NamedTuple):
    """Somebody looks whether the door is open."""
