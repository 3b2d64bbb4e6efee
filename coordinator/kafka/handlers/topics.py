"""CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords: what admin clients change.

Each topic of a request is handled by itself: a refusal of one does not affect the others.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.configs import describe_settings
from muster.coordinator.kafka.handlers.metadata import NO_ID
from muster.coordinator.kafka.protocol import InvalidReplicaAssignment, UnknownTopicId
from muster.long_work import map_in_turns
from muster.storage.broker.requests import LogRequests, MorePartitions, NewTopic
from muster.storage.errors import InvalidConfig, InvalidReplicationFactor, InvalidRequest, StorageError
from muster.storage.topics.catalog import format_id
from muster.storage.types import Topic

DEFAULT = -1
"""Leaves a count to the node."""

COPIES = 1
"""How many copies of a record one node can keep."""


class TopicHandlers:
    """Handlers that change topics, each for itself: one refusal does not hurt the others."""

    def __init__(self, requests: LogRequests, node_id: int) -> None:
        self._requests = requests
        self._broker = requests.broker
        self._node_id = node_id

    # -- create -------------------------------------------------------------------------------------------

    async def create_topics(self, request: Any, call: KafkaCall) -> Any:
        """Make topics, or only say whether that would go well."""
        times = Counter(topic.name for topic in request.topics)
        asked = await map_in_turns(lambda topic: self._asked(topic, times, request.validate_only), request.topics)
        wanted = [each for each in asked if isinstance(each, NewTopic)]
        made = iter(wanted if request.validate_only else await self._requests.topics.create(wanted))
        results = [next(made) if isinstance(each, NewTopic) else each for each in asked]
        answers = zip(request.topics, asked, results, strict=True)
        return struct("CreateTopicsResponse")(topics=await map_in_turns(lambda each: self._created(*each), answers))

    def _asked(self, topic: Any, times: Mapping[str, int], validate_only: bool) -> NewTopic | StorageError:
        """What the request says of one topic, or what speaks against it."""
        try:
            if times[topic.name] > 1:
                raise InvalidRequest(f"The request names topic '{topic.name}' twice; expected each once.")
            wanted = self._wanted(topic)
            if validate_only:
                self._requests.topics.check_new(wanted)
        except StorageError as error:
            return error
        return wanted

    def _created(self, topic: Any, asked: NewTopic | StorageError, result: Topic | NewTopic | StorageError) -> Any:
        made = struct("CreateTopicsResponse.topics")
        error = next((each for each in (asked, result) if isinstance(each, StorageError)), None)
        if error or isinstance(asked, StorageError):
            code, message = code_and_message(error)
            # Java's client cannot bear null here.
            return made(name=topic.name, error_code=code, error_message=message, configs=[])
        settings, ours = self._broker.settings.for_topic(asked.configs), self._broker.settings
        return made(
            name=topic.name,
            topic_id=result.id if isinstance(result, Topic) else NO_ID,
            error_message=None,
            num_partitions=asked.partitions,
            replication_factor=self._copies(asked),
            configs=describe_settings("CreateTopicsResponse.topics.configs", settings, ours, asked.configs),
        )

    def _wanted(self, topic: Any) -> NewTopic:
        """What is asked for. Raises StorageError."""
        return NewTopic(topic.name, self._count(topic), self._configs(topic))

    def _copies(self, asked: NewTopic) -> int:
        """How many each partition of a topic has that was made, or might be."""
        return COPIES

    def _partitions(self, asked: int) -> int:
        return self._broker.settings.num_partitions if asked == DEFAULT else asked

    def _count(self, wanted: Any) -> int:
        """How many partitions: as many as were assigned by hand, as asked for, or the node's default."""
        name = wanted.name
        if wanted.assignments:
            if wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT:
                raise InvalidRequest(
                    f"Topic '{name}' comes with assignments and with counts; expected -1 for both counts."
                )
            check_assignments(name, wanted.assignments, 0, self._node_id)
            return len(wanted.assignments)
        if wanted.replication_factor not in (DEFAULT, COPIES):
            raise InvalidReplicationFactor(
                f"Topic '{name}' cannot have replication factor {wanted.replication_factor} on one node; "
                f"expected {COPIES}, or -1 for the default."
            )
        return self._partitions(wanted.num_partitions)

    @staticmethod
    def _configs(wanted: Any) -> dict[str, str]:
        configs: dict[str, str] = {}
        for config in wanted.configs:
            if config.value is None:
                raise InvalidConfig(f"'{config.name}' has no value; expected text, or leave it out.")
            if config.name in configs:
                raise InvalidRequest(f"'{config.name}' is set twice for topic '{wanted.name}'; expected once.")
            configs[config.name] = config.value
        return configs

    # -- grow ---------------------------------------------------------------------------------------------

    async def create_partitions(self, request: Any, call: KafkaCall) -> Any:
        """Raise partition counts."""
        times = Counter(topic.name for topic in request.topics)

        def refusal(wanted: Any) -> StorageError | None:
            try:
                if times[wanted.name] > 1:
                    raise InvalidRequest(f"The request names topic '{wanted.name}' twice; expected each once.")
                self._check_growth(wanted)
            except StorageError as error:
                return error
            return None

        refused = await map_in_turns(refusal, request.topics)
        good = [self._growth(wanted) for wanted, no in zip(request.topics, refused, strict=True) if no is None]
        grown = iter([] if request.validate_only else await self._requests.topics.grow(good))
        made = struct("CreatePartitionsResponse.results")
        results = []
        for wanted, no in zip(request.topics, refused, strict=True):
            code, message = code_and_message(no or next(grown, None))
            results.append(made(name=wanted.name, error_code=code, error_message=message))
        return struct("CreatePartitionsResponse")(results=results)

    def _growth(self, wanted: Any) -> MorePartitions:
        return MorePartitions(wanted.name, wanted.count)

    def _check_growth(self, wanted: Any) -> None:
        self._broker.check_writable(wanted.name)
        self._requests.topics.check_growth(self._growth(wanted))
        present = self._broker.topic(wanted.name).partitions
        if wanted.assignments is not None:
            if len(wanted.assignments) != wanted.count - present:
                raise InvalidReplicaAssignment(
                    f"{len(wanted.assignments)} assignments for {wanted.count - present} new partitions of "
                    f"'{wanted.name}'; expected one each, or none at all."
                )
            check_brokers(wanted.name, [assignment.broker_ids for assignment in wanted.assignments], self._node_id)

    # -- delete -------------------------------------------------------------------------------------------

    async def delete_topics(self, request: Any, call: KafkaCall) -> Any:
        """Remove topics and their records for good; whoever waits for records of theirs is told."""
        if call.api_version >= 6:
            asked = [(topic.name, topic.topic_id) for topic in request.topics]
        else:
            asked = [(name, NO_ID) for name in request.topic_names]
        times = Counter(asked)
        found = await map_in_turns(lambda one: self._to_go(*one, times=times[one]), times)
        failed: Iterator[StorageError | None] = iter(
            await self._requests.topics.delete([each for each in found if isinstance(each, Topic)])
        )
        made = struct("DeleteTopicsResponse.responses")
        responses = []
        for (name, topic_id), each in zip(times, found, strict=True):
            if isinstance(each, Topic):
                name, topic_id = each.name, each.id
            code, message = code_and_message(next(failed) if isinstance(each, Topic) else each)
            responses.append(made(name=name, topic_id=topic_id, error_code=code, error_message=message))
        return struct("DeleteTopicsResponse")(responses=responses)

    def _to_go(self, name: str | None, topic_id: bytes, *, times: int) -> Topic | StorageError:
        try:
            if (name is None) == (topic_id == NO_ID):
                raise InvalidRequest("A topic to delete has a name and an id, or neither; expected one of the two.")
            if times > 1:
                raise InvalidRequest(f"The request names topic '{name or format_id(topic_id)}' twice; expected once.")
            if name is None:
                name = self._name_of(topic_id)
            self._broker.check_writable(name)
            return self._broker.topic(name)
        except StorageError as error:
            return error

    async def delete_records(self, request: Any, call: KafkaCall) -> Any:
        """Give up the records before an offset; -1 stands for all that can be read."""
        made = struct("DeleteRecordsResponse.topics")
        asked = [(topic.name, part) for topic in request.topics for part in topic.partitions]
        wanted = [(topic, part.partition_index, part.offset) for topic, part in asked]
        done = await self._requests.delete_records(wanted, max(request.timeout_ms, 0))
        results = iter(deleted_records_row(one[1], outcome) for one, outcome in zip(wanted, done, strict=True))
        topics = [
            made(name=topic.name, partitions=list(islice(results, len(topic.partitions)))) for topic in request.topics
        ]
        return struct("DeleteRecordsResponse")(topics=topics)

    def _name_of(self, topic_id: bytes) -> str:
        for topic in self._broker.topics().values():
            if topic.id == topic_id:
                return topic.name
        raise UnknownTopicId(f"No topic has the id {format_id(topic_id)}.")


def deleted_records_row(partition: int, outcome: int | StorageError) -> Any:
    made = struct("DeleteRecordsResponse.topics.partitions")
    if isinstance(outcome, StorageError):
        return made(partition_index=partition, low_watermark=-1, error_code=outcome.code)
    return made(partition_index=partition, low_watermark=outcome)


def code_and_message(outcome: Topic | StorageError | None) -> tuple[int, str | None]:
    """Kafka's number and words for it."""
    return (outcome.code, str(outcome)) if isinstance(outcome, StorageError) else (0, None)


def check_assignments(name: str, assignments: list[Any], first: int, node_id: int) -> None:
    """InvalidReplicaAssignment unless they number the partitions from `first` and name this node only."""
    numbers = sorted(assignment.partition_index for assignment in assignments)
    if numbers != list(range(first, first + len(assignments))):
        raise InvalidReplicaAssignment(
            f"The assignments of topic '{name}' name partitions {numbers}; expected {first} to "
            f"{first + len(assignments) - 1}, each once."
        )
    check_brokers(name, [assignment.broker_ids for assignment in assignments], node_id)


def check_brokers(name: str, broker_ids: list[list[int]], node_id: int) -> None:
    for brokers in broker_ids:
        if list(brokers) != [node_id]:
            raise InvalidReplicaAssignment(
                f"A partition of topic '{name}' is assigned to the nodes {list(brokers)}; there is only node {node_id}."
            )
