"""The handlers of a node of a cluster, where they differ from those of a node on its own.

FindCoordinator names the leader of the group's shard. Metadata covers the whole cluster: live nodes, controller, and
the leaders of all partitions, as this node knows them; that may be behind by one poll, as on a Kafka broker. A topic
created on demand is created through ZooKeeper, which may be slow or away: a request waits a moment, a repeated one
joins the creation in progress, and the topic appears once this node has it in its metadata image. CreateTopics and
CreatePartitions take replication factors and replica assignments. Elections and reassignments (KIP-455, KIP-860) work
on any node, whichever node is the controller. Some settings of a node can be changed while it runs (CL-A9).

Imported in cluster mode only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from muster.coordinator.edge.background_tasks import SupervisedTasks
from muster.coordinator.edge.cluster_view import (
    KAFKA,
    NO_NODE,
    ClusterView,
    NodeAddress,
    leader_address,
    visible_topic,
    visible_topics,
)
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import HangUp, KafkaCall
from muster.coordinator.kafka.handlers.classic_membership import MembershipHandlers
from muster.coordinator.kafka.handlers.configs import (
    BROKER_RESOURCE,
    ConfigChanger,
    ConfigHandlers,
    GroupConfigs,
    RequestedChanges,
    other_node_refusal,
)
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint, DescribedPartition, MetadataHandlers
from muster.coordinator.kafka.handlers.topics import DEFAULT, TopicHandlers
from muster.coordinator.kafka.handlers.transactions import TransactionService
from muster.coordinator.kafka.protocol import InvalidReplicaAssignment, LeaderNotAvailable
from muster.coordinator.replication.protocol.cluster_metadata import TRANSACTIONS, TopicPartition
from muster.long_work import map_in_turns
from muster.storage.broker.requests import LogRequests, MorePartitions, NewTopic
from muster.storage.errors import (
    InvalidRequest,
    RequestTimedOut,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from muster.storage.topics.catalog import check_topic_name
from muster.storage.types import Topic

if TYPE_CHECKING:
    from muster.coordinator.replication.protocol.cluster_metadata import PartitionView, TopicView


# FindCoordinator
# ---------------


class ClusterMembers(MembershipHandlers):
    """As its base; FindCoordinator names other nodes, too."""

    def __init__(
        self,
        groups: GroupRequests,
        endpoint: Callable[[], AdvertisedEndpoint],
        cluster: ClusterView,
        transactions: TransactionService | None = None,
    ) -> None:
        super().__init__(groups, endpoint, transactions)
        self._cluster = cluster

    def _of_group(self, group_id: str) -> dict[str, Any]:
        self._must_be_in_touch()
        shard = self._groups.shard_of(group_id)
        return coordinator_row(self._cluster.coordinator(shard, KAFKA), f"shard {shard} of the groups")

    def _of_transactional_id(self, transactional_id: str) -> dict[str, Any]:
        assert self._transactions is not None, "without it nobody comes here"
        self._must_be_in_touch()
        shard = self._transactions.shard_of(transactional_id)
        node = leader_address(self._cluster, TRANSACTIONS, shard, KAFKA)
        return coordinator_row(node, f"shard {shard} of the transactional ids")

    def _must_be_in_touch(self) -> None:
        if self._cluster.cut_off:
            raise HangUp("who coordinates may be known to all nodes but this one; another one is to be asked")


def coordinator_row(node: NodeAddress | None, what: str) -> dict[str, Any]:
    if node is None:
        why = f"nobody coordinates {what} right now; ask again"
        return {"node_id": -1, "port": -1, "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "error_message": why}
    return {"node_id": node.node_id, "host": node.host, "port": node.port, "error_message": ""}


# Topics created on demand
# ------------------------

CREATION_WAIT_S: Final = 1.0
"""How long an answer waits for its topics. Its client asks again soon; its connection waits meanwhile."""

MAX_CREATIONS: Final = 1_000

CreateTopicsCall = Callable[[Sequence[NewTopic]], Awaitable[Sequence[Topic | StorageError]]]


class TopicCreations:
    """What is asked for again while it is under way is not begun a second time."""

    def __init__(self, create: CreateTopicsCall, patience_s: float = CREATION_WAIT_S) -> None:
        self._create = create
        self._patience_s = patience_s
        self.under_way: dict[str, asyncio.Task[dict[str, StorageError]]] = {}
        self._tasks = SupervisedTasks()

    async def make(self, wanted: Sequence[NewTopic]) -> dict[str, StorageError]:
        """Why topics are not there yet, or will not be: by name; those that were made have none."""
        room = MAX_CREATIONS - len(self.under_way)
        new = [topic for topic in wanted if topic.name not in self.under_way][: max(0, room)]
        if new:
            self._start_creation(new)
        names = [topic.name for topic in wanted]
        tasks = {self.under_way[name] for name in names if name in self.under_way}
        if tasks:
            await asyncio.wait(tasks, timeout=self._patience_s)
        refused: dict[str, StorageError] = {name: creation_in_progress(name) for name in names}
        for task in tasks:
            if task.done():
                refused |= task.result()
        return refused

    def _start_creation(self, new: Sequence[NewTopic]) -> None:
        names = [topic.name for topic in new]
        task = self._tasks.start(self._made(new), "topics created on demand")
        self.under_way |= dict.fromkeys(names, task)
        task.add_done_callback(lambda _: self._forget(names))

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            del self.under_way[name]

    async def _made(self, wanted: Sequence[NewTopic]) -> dict[str, StorageError]:
        results = await self._create(wanted)
        return {
            topic.name: result
            for topic, result in zip(wanted, results, strict=True)
            if isinstance(result, StorageError) and not isinstance(result, RequestTimedOut | TopicAlreadyExists)
        }


def creation_in_progress(name: str) -> LeaderNotAvailable:
    return LeaderNotAvailable(f"Topic '{name}' is being made: nobody leads its partitions yet.")


# Metadata
# --------

NAMES_A_LISTENER: Final = 6
"""From this version on a leader that does not listen where the client asks has a code of its own (KIP-302)."""

LISTENER_NOT_FOUND: Final = 72
REPLICA_NOT_AVAILABLE: Final = 9
"""What version 0, which names live replicas only, says where that are not all."""


class ClusterMetadata(MetadataHandlers):
    """As its base, of the whole cluster. What is asked for and made is told of once the node knows of it."""

    def __init__(
        self,
        requests: LogRequests,
        endpoint: Callable[[], AdvertisedEndpoint],
        cluster: ClusterView,
        *,
        auto_create: bool,
    ) -> None:
        super().__init__(requests, endpoint, auto_create=auto_create, elsewhere=lambda topic: False)
        self._cluster = cluster
        self._making = TopicCreations(lambda wanted: requests.topics.create(wanted))

    def nodes(self) -> list[NodeAddress]:
        return self._cluster.nodes(KAFKA)

    def controller(self) -> int:
        return self._cluster.controller

    def _here(self, version: int) -> "ReachableNodes":
        """Raises HangUp where the node is cut off: a client would be told of itself for ever, and ask nobody else."""
        if self._cluster.cut_off:
            raise HangUp("what this node knows of its cluster may be over; another one is to be asked")
        return ReachableNodes(version, frozenset(node.node_id for node in self.nodes()))

    def _topics(self) -> "Mapping[str, TopicView]":
        return visible_topics(self._cluster)

    def _ids(self) -> "Mapping[bytes, TopicView]":
        return {topic.topic_id: topic for topic in visible_topics(self._cluster).values()}

    async def _make(self, names: Sequence[str]) -> dict[str, StorageError]:
        known, partitions = self._cluster.topics(), self._broker.settings.num_partitions
        missing = [NewTopic(name, partitions) for name in names if name not in known]
        return await self._making.make(missing) if missing else {}

    def _by_name(self, name: str, refused: Mapping[str, StorageError]) -> "TopicView":
        topic = visible_topic(self._cluster, name)
        if topic is not None and topic.partitions:
            return topic
        if topic is not None:
            raise LeaderNotAvailable(f"Topic '{name}' was made just now: nobody leads its partitions yet.")
        if name in refused:
            raise refused[name]
        check_topic_name(name, {})  # Clients ask again and again for a topic that might come to be.
        raise UnknownTopicOrPartition(f"Topic '{name}' does not exist.")

    def _partition_count(self, topic: "TopicView") -> int:
        return len(topic.partitions)

    def _id_of(self, topic: "TopicView") -> bytes:
        return topic.topic_id

    def _partitions(self, topic: "TopicView", here: "ReachableNodes") -> "Iterator[DescribedPartition]":
        return (self._partition(number, view, here) for number, view in sorted(topic.partitions.items()))

    def _partition(self, number: int, view: "PartitionView", here: "ReachableNodes") -> DescribedPartition:
        offline = self._cluster.offline(view)
        replicas, isr = view.replicas, view.isr
        code, leader = here.leader(view.leader, offline)
        if here.version == 0:  # which has no place for those that are offline
            replicas, isr = here.reachable_of(replicas), here.reachable_of(isr)
            if code is ErrorCode.NONE and (len(replicas), len(isr)) != (len(view.replicas), len(view.isr)):
                code = REPLICA_NOT_AVAILABLE
        return DescribedPartition(code, number, leader, view.leader_epoch, replicas, isr, offline)


class ReachableNodes(NamedTuple):
    """What one answer goes by: its version, and the nodes that its clients can reach."""

    version: int
    reachable: frozenset[int]

    def leader(self, node: int, offline: Sequence[int]) -> tuple[int, int]:
        """The code and the leader that clients are told."""
        if node in self.reachable:
            return ErrorCode.NONE, node
        if node == NO_NODE or node in offline or self.version < NAMES_A_LISTENER:
            return ErrorCode.LEADER_NOT_AVAILABLE, NO_NODE
        return LISTENER_NOT_FOUND, NO_NODE

    def reachable_of(self, nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(node for node in nodes if node in self.reachable)


# CreateTopics, CreatePartitions
# ------------------------------


class ClusterTopicHandlers(TopicHandlers):
    """As its base; where copies go is looked at by whoever places them (`requests.topics`)."""

    def __init__(self, requests: LogRequests, node_id: int, cluster: ClusterView) -> None:
        super().__init__(requests, node_id)
        self._cluster = cluster

    def _wanted(self, topic: Any) -> NewTopic:
        configs = self._configs(topic)
        if not topic.assignments:
            return NewTopic(topic.name, self._partitions(topic.num_partitions), configs, topic.replication_factor)
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            raise InvalidRequest(
                f"Topic '{topic.name}' comes with assignments and with counts; expected -1 for both counts."
            )
        assignments = {each.partition_index: list(each.broker_ids) for each in topic.assignments}
        if len(assignments) < len(topic.assignments):
            raise InvalidReplicaAssignment(
                f"The assignments of topic '{topic.name}' name a partition twice; expected each once."
            )
        return NewTopic(topic.name, len(assignments), configs, DEFAULT, assignments)

    def _copies(self, asked: NewTopic) -> int:
        if asked.assignments is not None:
            return len(asked.assignments[0])
        view = self._cluster.partition(asked.name, 0)
        return asked.replication_factor if view is None else len(view.replicas)

    def _growth(self, wanted: Any) -> MorePartitions:
        given = None if wanted.assignments is None else [list(each.broker_ids) for each in wanted.assignments]
        return MorePartitions(wanted.name, wanted.count, given)

    def _check_growth(self, wanted: Any) -> None:
        self._broker.check_writable(wanted.name)
        self._requests.topics.check_growth(self._growth(wanted))


# Settings of nodes
# -----------------

DYNAMIC_BROKER_CONFIG: Final = 2
"""Where a value comes from."""
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

NodeConfigs = Mapping[str, str]


class NodeConfigStore(Protocol):
    """What `replication.admin.ClusterAdmin` does for nodes. Both raise StorageError."""

    async def node_configs(self, node: int) -> NodeConfigs: ...

    async def set_node_configs(
        self, node: int, asked: Callable[[NodeConfigs], Mapping[str, str | None]], *, validate_only: bool = ...
    ) -> None: ...


class ClusterConfigHandlers(ConfigHandlers):
    """As its base, with what is set for this node at ZooKeeper."""

    def __init__(
        self, requests: LogRequests, node_id: int, groups: GroupConfigs, cluster: ClusterView, nodes: NodeConfigStore
    ) -> None:
        super().__init__(requests, node_id, groups, cluster)
        self._node_configs = nodes

    async def describe_configs(self, request: Any, call: KafkaCall) -> Any:
        answer = await super().describe_configs(request, call)
        for result in answer.results:
            if result.resource_type == BROKER_RESOURCE and not result.error_code:
                try:
                    show_dynamic_values(
                        result, await self._node_configs.node_configs(self._node_id), request.include_synonyms
                    )
                except StorageError as error:
                    result.error_code, result.error_message, result.configs = error.code, str(error), []
        return answer

    def _changers(self) -> tuple[tuple[int, ConfigChanger], ...]:
        return (*super()._changers(), (BROKER_RESOURCE, self._change_nodes))

    def _of_node(self, resource: Any, asked_of: Callable[[Any], RequestedChanges]) -> RequestedChanges:
        if not resource.resource_name:
            raise InvalidRequest("The node has no name: there are no defaults of all nodes here; name each of them.")
        if resource.resource_name != str(self._node_id):
            raise other_node_refusal(resource.resource_name, self._nodes(), self._node_id)
        return asked_of(resource)

    async def _change_nodes(
        self, wanted: Sequence[tuple[str, RequestedChanges]], validate_only: bool, call: KafkaCall
    ) -> Sequence[Any]:
        """This one: no other is left."""
        return [await self._changed(asked, validate_only) for _, asked in wanted]

    async def _changed(self, asked: RequestedChanges, validate_only: bool) -> StorageError | None:
        try:
            await self._node_configs.set_node_configs(
                self._node_id, lambda given: asked(given, given), validate_only=validate_only
            )
        except StorageError as refusal:
            return refusal
        return None


def show_dynamic_values(result: Any, given: NodeConfigs, synonyms: bool) -> None:
    """The rows of what can be set while the node runs, as it is."""
    made = struct("DescribeConfigsResponse.results.configs.synonyms")
    for entry in result.configs:
        if entry.name not in RATES:
            continue
        entry.read_only = False
        if entry.name in given:
            entry.value, entry.config_source = given[entry.name], DYNAMIC_BROKER_CONFIG
            entry.is_default = False
            if synonyms:
                own = made(name=entry.name, value=entry.value, source=DYNAMIC_BROKER_CONFIG)
                entry.synonyms = [own, *entry.synonyms]


# ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments
# ---------------------------------------------------------------------

PREFERRED, UNCLEAN = 0, 1
MAX_TIMEOUT_MS: Final = 600_000
ONE_NAMED: Final = "An unclean election may lose records: expected one partition that is named."


class OngoingReassignment(Protocol):
    """A reassignment that is under way."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def adding(self) -> tuple[int, ...]: ...
    @property
    def removing(self) -> tuple[int, ...]: ...


class PartitionAdministrator(Protocol):
    """What `replication.admin.ClusterAdmin` does."""

    async def elect(
        self, places: Iterable[TopicPartition] | None, unclean: bool = ..., timeout_ms: int = ...
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    async def reassign(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], timeout_ms: int = ...
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    def reassignments(
        self, places: Iterable[TopicPartition] | None = ...
    ) -> Mapping[TopicPartition, OngoingReassignment]: ...


class PartitionAdminHandlers:
    """Each partition of a request for itself: one refusal does not hurt the others."""

    def __init__(self, admin: PartitionAdministrator, cluster: ClusterView) -> None:
        self._admin = admin
        self._cluster = cluster

    async def elect_leaders(self, request: Any, call: KafkaCall) -> Any:
        """Have the first replica elected (0), or anybody who lives (1); for all partitions where none is named."""
        made = struct("ElectLeadersResponse")
        asked = request.topic_partitions
        places = None if asked is None else [TopicPartition(each.topic, p) for each in asked for p in each.partitions]
        if request.election_type not in (PREFERRED, UNCLEAN) or (request.election_type == UNCLEAN and places is None):
            return made(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
        unclean = request.election_type == UNCLEAN
        found = await self._admin.elect(places, unclean, bounded_timeout_ms(request.timeout_ms))
        topic_row = struct("ElectLeadersResponse.replica_election_results")
        row = struct("ElectLeadersResponse.replica_election_results.partition_result")

        def result(place: TopicPartition, code: ErrorCode) -> Any:
            why = ONE_NAMED if unclean and code is ErrorCode.INVALID_REQUEST else error_sentence(place, code)
            return row(partition_id=place.partition, error_code=code, error_message=why)

        told = dict(zip(found, await map_in_turns(lambda place: result(place, found[place]), found), strict=True))
        rows = [
            topic_row(topic=topic, partition_result=[told[place] for place in of])
            for topic, of in group_by_topic(found).items()
        ]
        return made(replica_election_results=rows)

    async def alter_partition_reassignments(self, request: Any, call: KafkaCall) -> Any:
        """Give partitions other replicas (KIP-455); null cancels what is under way."""
        wanted = {
            TopicPartition(topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
            for topic in request.topics
            for each in topic.partitions
        }
        found: dict[TopicPartition, ErrorCode] = {}
        if not request.allow_replication_factor_change:
            found = dict.fromkeys(self._resized(wanted), ErrorCode.INVALID_REPLICATION_FACTOR)
        good = {place: target for place, target in wanted.items() if place not in found}
        found |= await self._admin.reassign(good, bounded_timeout_ms(request.timeout_ms))
        topic_row = struct("AlterPartitionReassignmentsResponse.responses")
        row = struct("AlterPartitionReassignmentsResponse.responses.partitions")

        def result(place: TopicPartition) -> Any:
            code = found[place]
            return row(partition_index=place.partition, error_code=code, error_message=error_sentence(place, code))

        told = dict(zip(wanted, await map_in_turns(result, wanted), strict=True))
        return struct("AlterPartitionReassignmentsResponse")(
            allow_replication_factor_change=request.allow_replication_factor_change,
            responses=[
                topic_row(name=topic, partitions=[told[place] for place in of])
                for topic, of in group_by_topic(wanted).items()
            ],
        )

    def _resized(self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]) -> list[TopicPartition]:
        """Those that would have more or fewer replicas than before (KIP-860)."""
        return [
            place
            for place, target in wanted.items()
            if target is not None
            and (view := self._cluster.partition(*place)) is not None
            and len(target) != len(view.replicas) - len(view.adding)
        ]

    async def list_partition_reassignments(self, request: Any, call: KafkaCall) -> Any:
        """Those under way, of the partitions asked for or of all."""
        asked = request.topics
        if asked is not None:
            asked = [TopicPartition(topic.name, number) for topic in asked for number in topic.partition_indexes]
        found = self._admin.reassignments(asked)
        topic_row = struct("ListPartitionReassignmentsResponse.topics")
        row = struct("ListPartitionReassignmentsResponse.topics.partitions")

        def result(place: TopicPartition) -> Any:
            one = found[place]
            return row(
                partition_index=place.partition,
                replicas=list(one.replicas),
                adding_replicas=list(one.adding),
                removing_replicas=list(one.removing),
            )

        return struct("ListPartitionReassignmentsResponse")(
            topics=[
                topic_row(name=topic, partitions=[result(place) for place in of])
                for topic, of in group_by_topic(found).items()
            ]
        )


def group_by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place)
    return found


def error_sentence(place: TopicPartition, code: ErrorCode) -> str | None:
    return None if code is ErrorCode.NONE else f"{place}: {code.meaning}"


def bounded_timeout_ms(timeout_ms: int) -> int:
    return max(0, min(timeout_ms, MAX_TIMEOUT_MS))
