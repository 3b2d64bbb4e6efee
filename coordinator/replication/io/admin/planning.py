"""Changes of a cluster's topics, looked at and not begun: which partitions lie where, and what speaks against it.

Pure: what is drawn at random comes as an argument, and nodes and topics as the image has them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from muster.coordinator.errors import CoordinatorError
from muster.coordinator.kafka.errors import InvalidReplicaAssignment
from muster.coordinator.replication.protocol.facts import INTERNAL, ClusterTopic, ReplicaAssignment
from muster.coordinator.replication.protocol.image import ClusterImage, ClusterNodeStatus
from muster.coordinator.replication.protocol.placement import (
    NodeRack,
    alternate_racks,
    check_assignment,
    place_replicas,
)
from muster.coordinator.zookeeper.cluster.cluster_layout import config_json
from muster.storage.broker.topic_requests import MorePartitions, NewTopic
from muster.storage.config import LogSettings
from muster.storage.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    TopicAlreadyExists,
)
from muster.storage.topics.catalog import check_topic_name, colliding_name

ReplicaLists: TypeAlias = tuple[tuple[int, ...], ...]
"""Of each partition, the one that is to lead first."""

RESERVED = frozenset(map(colliding_name, INTERNAL))
"""Names that nodes keep for themselves, and what counts as the same."""
MOST_BYTES = 1_000_000
"""Of a topic's znode and its settings, which are made together: ZooKeeper takes less than 1 MiB in one request."""


class PlacementDraw(NamedTuple):
    """Where the first replica goes, and how far the others follow, so that topics do not all begin at one node."""

    start: int = 0
    shift: int = 0


@dataclass(slots=True)
class PlannedTopics:
    """What one request plans: each of its topics is held against those before it, and those that were there when it
    came. alike, there: names by what they are alike to; load: replicas by node."""

    alike: dict[str, str] = field(default_factory=dict)
    load: Counter[int] = field(default_factory=Counter)

    there: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, image: ClusterImage) -> "PlannedTopics":
        """For a request that comes now. It takes its time where there are many partitions: once for each request."""
        return cls(
            load=count_replicas(view.replicas for _, view in image.partitions()),
            there={colliding_name(it): it for it in image.topics},
        )

    def take(self, name: str, replicas: ReplicaLists) -> None:
        self.alike[colliding_name(name)] = name
        self.load += count_replicas(replicas)

    def give_back(self, name: str, replicas: ReplicaLists) -> None:
        del self.alike[colliding_name(name)]
        self.load -= count_replicas(replicas)


class TopicPlanner:
    """default_factor: of who does not say. draw: a number below the one that is given, for each new topic anew."""

    def __init__(
        self,
        image: ClusterImage,
        settings: LogSettings,
        default_factor: int,
        draw: Callable[[int], int] = lambda below: 0,
    ) -> None:
        self._image = image
        self._settings = settings
        self._factor = default_factor
        self._draw = draw

    def new_topic(self, wanted: NewTopic, beside: PlannedTopics) -> ReplicaLists:
        """Where its partitions are to lie. Raises StorageError: InvalidTopic, TopicAlreadyExists, InvalidConfig,
        InvalidPartitions, InvalidReplicationFactor (38), InvalidReplicaAssignment (39)."""
        name = wanted.name
        if colliding_name(name) in RESERVED:
            raise InvalidTopicName(f"'{name}' is a name that nodes keep for themselves; expected another one.")
        check_topic_name(name, beside.there)
        check_topic_name(name, beside.alike)
        if name in self._image.topics or colliding_name(name) in beside.alike:
            raise TopicAlreadyExists(f"Topic '{name}' exists already.")
        self._settings.for_topic(wanted.configs)
        check_configs_size(name, wanted.configs)
        if wanted.assignments is not None:
            replicas = self.assigned(wanted.assignments)
        else:
            if wanted.partitions < 1:
                raise InvalidPartitions(
                    f"Topic '{name}' cannot have {wanted.partitions} partitions; expected 1 or more."
                )
            replicas = self.placed(wanted.partitions, wanted.replication_factor)
        self._bear(name, replicas, beside, configs_size(wanted.configs))
        beside.take(name, replicas)
        return replicas

    def growth(self, topic: ClusterTopic, wanted: MorePartitions, beside: PlannedTopics) -> ReplicaLists:
        """Where its partitions from the first new one on are to lie. topic: as it is written. Raises StorageError."""
        present = len(topic.partitions)
        if colliding_name(topic.name) in beside.alike:
            raise InvalidRequest(f"Topic '{topic.name}' is to be changed twice at once; expected once.")
        if wanted.total <= present:
            raise InvalidPartitions(
                f"Topic '{topic.name}' cannot have {wanted.total} partitions; expected more than {present}."
            )
        original = settled_replicas(topic.partitions[0])
        if wanted.assignments is None:
            replicas = self._continued(original, present, wanted.total - present)
        else:
            given = dict(enumerate(wanted.assignments, present))
            if len(given) != wanted.total - present or any(len(ids) != len(original) for ids in given.values()):
                raise InvalidReplicaAssignment(
                    f"The assignments of {wanted.total - present} new partitions of '{topic.name}' are "
                    f"{[list(ids) for ids in wanted.assignments][:20]}; expected one for each, of {len(original)} "
                    "replicas as its first partition has, or none at all."
                )
            replicas = self.assigned(given, present)
        self._bear(topic.name, replicas, beside, assignments_size([each.replicas for each in topic.partitions]))
        beside.take(topic.name, replicas)
        return replicas

    def change(self, name: str, given: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
        """What is set for a topic afterwards; None unsets. Raises InvalidConfig."""
        configs = {key: value for key, value in {**given, **changes}.items() if value is not None}
        after = self._settings.for_topic(configs)
        if self._settings.for_topic(given).compacted and not after.compacted:
            raise InvalidConfig(
                f"'cleanup.policy' of topic '{name}' cannot become {after.cleanup_policy!r}: compaction leaves gaps "
                "that would look like damage then. Keep compact in it, or make a new topic and copy the records."
            )
        check_configs_size(name, configs)
        return configs

    # Where partitions go.

    def assigned(self, assignments: Mapping[int, Sequence[int]], first: int = 0) -> ReplicaLists:
        """As it was given, if it can be so."""
        if not assignments:
            raise InvalidReplicaAssignment("There is no assignment in it; expected one for each partition.")
        try:
            check_assignment(assignments, (node.id for node in self._image.live()), first=first)
        except CoordinatorError as error:
            raise InvalidReplicaAssignment(error.message) from None
        return tuple(tuple(assignments[number]) for number in sorted(assignments))

    def placed(self, partitions: int, factor: int) -> ReplicaLists:
        nodes = self._nodes()
        drawn = PlacementDraw(self._draw(len(nodes)), self._draw(len(nodes))) if nodes else PlacementDraw()
        return place_partitions(nodes, partitions, self._factor if factor == -1 else factor, drawn)

    def _continued(self, original: Sequence[int], first: int, more: int) -> ReplicaLists:
        """As if all had been made at once, beginning where the first partition is led, as Kafka does it."""
        nodes = self._nodes()
        ring = [each.node for each in alternate_racks(nodes)]
        start = ring.index(original[0]) if original[0] in ring else 0
        return place_partitions(nodes, more, len(original), PlacementDraw(start, start), first)

    def _nodes(self) -> list[NodeRack]:
        """Live ones; those that are about to stop are taken where there are no others."""
        live = [NodeRack(node.id, node.rack) for node in self._image.live() if node.status is ClusterNodeStatus.LIVE]
        return live or [NodeRack(node.id, node.rack) for node in self._image.live()]

    def _bear(self, name: str, replicas: ReplicaLists, beside: PlannedTopics, size: int) -> None:
        """Whether nodes take that many more (`max.partitions`), and the request that writes them: it has so many bytes
        without them."""
        come = count_replicas(replicas)
        for node, more in sorted(come.items()):
            total = beside.load[node] + more
            if total > self._settings.max_partitions:
                raise InvalidPartitions(
                    f"Topic '{name}' would bring node {node} to {total} partitions, above its limit of "
                    f"{self._settings.max_partitions} (max.partitions). Raise it, or take fewer partitions."
                )
        total = size + assignments_size(replicas)
        if total > MOST_BYTES:
            raise InvalidPartitions(
                f"Topic '{name}' would have {len(replicas)} more partitions: it would be written in {total} bytes, and "
                f"ZooKeeper takes at most {MOST_BYTES} at once; take fewer."
            )


def configs_size(configs: Mapping[str, str]) -> int:
    """Bytes in which settings are written."""
    return len(config_json(configs))


def assignments_size(replicas: Iterable[Sequence[int]]) -> int:
    """At most so many, of a topic of fewer than a million partitions."""
    return sum(len(str(each)) + 12 for each in replicas)


def check_configs_size(name: str, configs: Mapping[str, str]) -> None:
    """Raises InvalidConfig."""
    total = configs_size(configs)
    if total > MOST_BYTES:
        longest = max(configs, key=lambda each: len(configs[each]))
        raise InvalidConfig(
            f"'{longest}' of topic '{name}' is {len(configs[longest].encode())} bytes long: the topic's settings would "
            f"be written in {total} bytes, and ZooKeeper takes at most {MOST_BYTES} at once. Shorten it."
        )


def place_partitions(
    nodes: Sequence[NodeRack], partitions: int, factor: int, drawn: PlacementDraw, first: int = 0
) -> ReplicaLists:
    try:
        return place_replicas(nodes, partitions, factor, start=drawn.start, shift=drawn.shift, first=first)
    except CoordinatorError as error:
        raise InvalidReplicationFactor(error.message) from None


def settled_replicas(assignment: ReplicaAssignment) -> tuple[int, ...]:
    return tuple(each for each in assignment.replicas if each not in assignment.adding)


def count_replicas(replicas: Iterable[Sequence[int]]) -> Counter[int]:
    return Counter(node for each in replicas for node in each)
