"""All topics of the upstream, as one broker tells them; and whether a broker knows one, by its name and by its id.

An answer about all topics may be megabytes, and is mostly the one of before: then nothing of it is read. A large one is
read in a thread. It comes by a connection of its own, so that no heartbeat waits behind it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from muster.coordinator.kafka.codec.codec import MalformedFrame, decode, struct
from muster.coordinator.kafka.codec.emitter import Frame
from muster.coordinator.kafka.connections.client import body_position
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import (
    NO_ID,
    UNKNOWN_ID,
    UNKNOWN_NAME,
    TopicQuestion,
    UpstreamTopic,
)
from muster.coordinator.kafka_backend.upstream.errors import Unreached, UpstreamError, describe_address
from muster.coordinator.kafka_backend.upstream.line import UpstreamConnection
from muster.coordinator.kafka_backend.upstream.upstream import MOST_TOPICS, Upstream
from muster.coordinator.kafka_backend.upstream.view import UpstreamMetadata, merge_metadata

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
        raise Unreached(f"{describe_address(line.address)} sent what is no answer to Metadata: {error}") from error
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
    answer = await line.ask("Metadata", request, upstream.reach.answer_s)
    return list(answer.topics)
