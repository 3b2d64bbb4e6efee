"""Requests about topics: settings, creation, producers of a partition, all topics, and whether a broker knows one.

An answer about all topics may be megabytes, and is mostly the one of before: then nothing of it is read. A large
one is decoded in a thread. It arrives on a connection of its own, so that no heartbeat waits behind it. A broker is
asked for a topic by its name and by its id.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from muster.coordinator.kafka.codec.codec import Frame, MalformedFrame, decode, struct
from muster.coordinator.kafka.connections.client import body_position
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import (
    NO_ID,
    UNKNOWN_ID,
    UNKNOWN_NAME,
    TopicQuestion,
    UpstreamTopic,
)
from muster.coordinator.kafka_backend.upstream.connection import UpstreamConnection
from muster.coordinator.kafka_backend.upstream.protocol import (
    Unreached,
    UpstreamError,
    UpstreamRefused,
    describe_address,
)
from muster.coordinator.kafka_backend.upstream.upstream_client import (
    MOST_TOPICS,
    Upstream,
    UpstreamMetadata,
    merge_metadata,
)

TOPIC: Final = 2
BROKER: Final = 4
"""DescribeConfigs' types of resources."""
OF_TOPIC: Final = 1
"""Its source of what was set for a topic itself."""
CREATE_MS: Final = 30_000
TOPIC_ALREADY_EXISTS: Final = 36
NOT_CONTROLLER: Final = 41


class PartitionProducer(NamedTuple):
    """A producer that a partition knows."""

    producer_id: int
    epoch: int
    last_sequence: int
    transaction_from: int
    """Where its open transaction begins; -1: none is open."""


class TopicConfigEntry(NamedTuple):
    """A setting of a topic. own: it was set for this topic."""

    name: str
    value: str
    own: bool


async def topic_configs(upstream: Upstream, topic: str, names: Sequence[str]) -> dict[str, str]:
    """The values of these settings of a topic, defaults included. Raises UpstreamError."""
    return {each.name: each.value for each in await describe_topic_configs(upstream, topic, names)}


async def describe_topic_configs(
    upstream: Upstream, topic: str, names: Sequence[str] | None = None
) -> list[TopicConfigEntry]:
    """These settings of a topic; None: all. Raises UpstreamError."""
    resource = struct("DescribeConfigsRequest.resources")(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None if names is None else list(names)
    )
    answer = await upstream.any("DescribeConfigs", struct("DescribeConfigsRequest")(resources=[resource]))
    for result in answer.results:
        if result.error_code:
            raise UpstreamRefused(f"asking for the settings of {topic}", result.error_code, result.error_message)
        return [
            TopicConfigEntry(each.name, each.value or "", each.config_source == OF_TOPIC) for each in result.configs
        ]
    return []


async def describe_broker_config(upstream: Upstream, name: str) -> str | None:
    """A setting of a broker, whichever; None: it has none of this name, or does not tell. Raises UpstreamError."""
    broker = next(iter(upstream.view.brokers), upstream.view.controller)
    resource = struct("DescribeConfigsRequest.resources")(
        resource_type=BROKER, resource_name=str(broker), configuration_keys=[name]
    )
    answer = await upstream.ask_broker(
        broker, "DescribeConfigs", struct("DescribeConfigsRequest")(resources=[resource])
    )
    return next((each.value for result in answer.results for each in result.configs if each.name == name), None)


async def create_topic(
    upstream: Upstream,
    topic: str,
    partitions: int,
    replication: int,
    configs: Mapping[str, str],
    *,
    validate_only: bool = False,
) -> None:
    """Make it, unless it is there by now; validate_only: ask whether it could be made. Raises UpstreamError."""
    settings = [struct("CreateTopicsRequest.topics.configs")(name=name, value=value) for name, value in configs.items()]
    wanted = struct("CreateTopicsRequest.topics")(
        name=topic, num_partitions=partitions, replication_factor=replication, configs=settings
    )
    request = struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=CREATE_MS, validate_only=validate_only)
    controller = upstream.view.controller
    if controller in upstream.view.brokers:
        answer = await upstream.ask_broker(controller, "CreateTopics", request, waits_s=CREATE_MS / 1000)
    else:
        answer = await upstream.any("CreateTopics", request)
    for made in answer.topics:
        if made.error_code not in (0, TOPIC_ALREADY_EXISTS):
            raise UpstreamRefused(f"making the topic {topic}", made.error_code, made.error_message)


async def list_producers(upstream: Upstream, topic: str, partition: int) -> list[PartitionProducer]:
    """The producers that the partition's leader knows. Raises UpstreamError."""
    asked = struct("DescribeProducersRequest.topics")(name=topic, partition_indexes=[partition])
    request = struct("DescribeProducersRequest")(topics=[asked])
    answer = await upstream.ask_broker(upstream.leader(topic, partition), "DescribeProducers", request)
    for each in answer.topics:
        for part in each.partitions:
            if part.error_code:
                raise UpstreamRefused(f"asking who writes to {topic}-{partition}", part.error_code, part.error_message)
            return [
                PartitionProducer(one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
                for one in part.active_producers
            ]
    return []


# All topics, as one broker reports them
# --------------------------------------

CATALOG: Final = "catalog"
"""The purpose of those connections."""

LARGE_BYTES: Final = 128 << 10
"""From so much on an answer is read in a thread."""

BY_ID_FROM: Final = 12
"""Before this version of Metadata no broker can be asked for a topic by its id (KIP-516)."""

SAYS_NOTHING: Final = -1
"""In the place of a code: the answer leaves it out."""


class AllTopics(NamedTuple):
    """All topics. mark: tells this answer from another one. topics: those that could be told of. internal: the names of
    Kafka's own among them. view: with the leaders."""

    mark: bytes
    topics: Mapping[str, UpstreamTopic]
    internal: frozenset[str]
    view: UpstreamMetadata


async def fetch_all_topics(upstream: Upstream, known: UpstreamMetadata, mark: bytes = b"") -> AllTopics | None:
    """What any broker tells; None where it is word by word what `mark` was. known: what leaders' epochs are held
    against (KIP-320). Raises UpstreamError."""

    async def ask(line: UpstreamConnection) -> tuple[UpstreamConnection, int, Frame]:
        request = struct("MetadataRequest")(topics=None, allow_auto_topic_creation=False)
        version = version_of(line)
        return line, version, await line.ask_in(version, "Metadata", request, upstream.reach.answer_s)

    line, version, frame = await upstream.by_any(ask, CATALOG)
    try:
        if len(frame) < LARGE_BYTES:
            found = decode_catalog(version, frame, known, mark)
        else:
            found = await asyncio.to_thread(decode_catalog, version, frame, known, mark)
    except MalformedFrame as error:
        line.close()
        raise Unreached(f"{describe_address(line.address)} sent an invalid answer to Metadata: {error}") from error
    if found is not None:
        upstream.met(found.view)
    return found


def version_of(line: UpstreamConnection) -> int:
    """Raises UpstreamError."""
    version = line.versions.get("Metadata")
    if version is None:
        raise UpstreamError(
            f"{describe_address(line.address)} does not tell the ids of topics; expected Kafka 2.8 or later"
        )
    return version


def decode_catalog(version: int, frame: Frame, known: UpstreamMetadata, mark: bytes) -> AllTopics | None:
    """For any thread. Raises MalformedFrame."""
    anew = blake2b(frame[4:], digest_size=16).digest()  # but for its number
    if anew == mark:
        return None
    answer = decode("MetadataResponse", version, frame, body_position("Metadata", version, frame))[0]
    topics = {each.name: topic_of_row(each) for each in answer.topics if not each.error_code}
    internal = frozenset(each.name for each in answer.topics if each.is_internal)
    before = replace(known, topics={name: known.topics[name] for name in topics.keys() & known.topics.keys()})
    return AllTopics(anew, topics, internal, merge_metadata(before, answer))


def topic_of_row(told: Any) -> UpstreamTopic:
    count = max((part.partition_index for part in told.partitions), default=-1) + 1
    return UpstreamTopic(bytes(told.topic_id), count)


class TopicKnowledge(NamedTuple):
    """What a broker says of one topic: by its name, and by its id."""

    name_code: int
    id_code: int
    now: UpstreamTopic | None = None
    """What it knows under that name."""


async def ask_about_topics(
    upstream: Upstream, broker: int, questions: Sequence[TopicQuestion]
) -> dict[TopicQuestion, TopicKnowledge]:
    """Whether this broker knows these topics (at most 1000). A broker that cannot be asked by id, and a topic without
    one: then the name alone is asked for, and who does not know it counts as not knowing either. Raises UpstreamError.
    """
    if len(questions) > MOST_TOPICS:
        raise ValueError(f"{len(questions)} topics in one question; at most {MOST_TOPICS}")
    line = await upstream.lines.to(upstream.address_of(broker), CATALOG)
    asks_ids = version_of(line) >= BY_ID_FROM
    by_name = {each.name: each for each in await ask_some(upstream, line, [{"name": one.name} for one in questions])}
    ids = [{"topic_id": one.id, "name": None} for one in questions if one.id != NO_ID] if asks_ids else []
    by_id = {bytes(each.topic_id): each.error_code for each in await ask_some(upstream, line, ids)} if ids else {}
    found = {}
    for question in questions:
        told = by_name.get(question.name)
        name_code = SAYS_NOTHING if told is None else told.error_code
        if asks_ids and question.id != NO_ID:
            id_code = by_id.get(question.id, SAYS_NOTHING)
        else:
            id_code = UNKNOWN_ID if name_code == UNKNOWN_NAME else name_code
        found[question] = TopicKnowledge(name_code, id_code, None if told is None or name_code else topic_of_row(told))
    return found


async def ask_some(upstream: Upstream, line: UpstreamConnection, wanted: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
    topics = [struct("MetadataRequest.topics")(**each) for each in wanted]
    request = struct("MetadataRequest")(topics=topics, allow_auto_topic_creation=False)
    answer = await line.send_request("Metadata", request, upstream.reach.answer_s)
    return list(answer.topics)
