"""What the commands show of the upstream without asking any node: one shard's log, and which node owns which shard.

The dump prints each batch of a shard, its writer, and whether it counts (KB-S6). The status prints brokers, nodes,
shards and the lengths of their logs. Only commands import this module.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from muster.assignors.api import TopicPartition
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import (
    AssignedNode,
    ShardAssignment,
    decode_assignment,
)
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    LogBatch,
    ShardRecord,
    ShardReplay,
    decode_owner_record,
)
from muster.coordinator.kafka_backend.state_log_io import log_batches_of
from muster.coordinator.kafka_backend.state_topic import UNKNOWN_TOPIC
from muster.coordinator.kafka_backend.upstream import group_requests, record_requests
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.record_requests import EARLIEST, log_span, read_log
from muster.coordinator.kafka_backend.upstream.upstream_client import NO_LEADER, Upstream, UpstreamMetadata
from muster.storage.records.batch import BatchView

# muster log dump --engine (KB-S6)
# --------------------------------

PATIENCE_S = 30.0
SHOWN_BYTES = 200
"""Of a key, and of a value."""


async def dump_shard_log(
    reach: UpstreamAddress, topic: str, shard: int, tell: Callable[[dict[str, Any]], None], *, records: bool = False
) -> None:
    """Tell each batch of the shard as a row, oldest first. Raises UpstreamError."""
    upstream = Upstream(reach)
    try:
        check_shard(await upstream.refresh([topic]), topic, shard)
        start, upto = await log_span(upstream, topic, shard)
        replay = ShardReplay()
        async for batches in read_log(upstream, topic, shard, start, upto, deadline_s=PATIENCE_S):
            for row in await asyncio.to_thread(rows_of, replay, batches, records):
                tell(row)
    finally:
        upstream.close()


def check_shard(view: UpstreamMetadata, topic: str, shard: int) -> None:
    """Raises UpstreamError for a shard that is not there."""
    known = view.topics.get(topic)
    if known is None or known.code:
        raise UpstreamRefused(f"asking for the topic {topic}", UNKNOWN_TOPIC if known is None else known.code)
    if shard not in known.parts:
        raise UpstreamError(f"{topic} has no shard {shard}; expected 0 to {len(known.parts) - 1}")


def rows_of(replay: ShardReplay, batches: Iterable[BatchView], records: bool) -> list[dict[str, Any]]:
    return [row_of(replay, batch, records) for batch in log_batches_of(batches)]


def row_of(replay: ShardReplay, batch: LogBatch, records: bool) -> dict[str, Any]:
    """One batch, judged by all that came before it: a later owner record makes nothing void that counted."""
    fenced_records = replay.fenced_records
    replay.replay_batch(batch)
    row: dict[str, Any] = {
        "offset": batch.base_offset,
        "to": batch.next_offset - 1,
        "producer": f"{batch.producer.id}/{batch.producer.epoch}",
        "records": len(batch.records),
    }
    if batch.marker is not None:
        row["is"] = "commit marker" if batch.marker else "abort marker"
    elif batch.transactional:
        row["is"] = "of a transaction"
    else:
        row["is"] = "void" if replay.fenced_records > fenced_records else "counts"
    owner = next((found for record in batch.records if (found := decode_owner_record(record)) is not None), None)
    if owner is not None:
        row |= {"is": "owner", "turn": owner.turn, "node": owner.node, "instance": owner.instance}
    if records:
        row["content"] = [content_of(record) for record in batch.records]
    return row


def content_of(record: ShardRecord) -> dict[str, Any]:
    return {"offset": record.offset, "key": show_bytes(record.key), "value": show_bytes(record.value)}


def show_bytes(data: bytes | None) -> str | None:
    """Text as it is, other bytes by their numbers; long ones cut.

    >>> show_bytes(b'{"group":"g"}'), show_bytes(b"\\x00\\x01g"), show_bytes(None)
    ('{"group":"g"}', '\\\\x00\\\\x01g', None)
    """
    if data is None:
        return None
    cut = data[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    text = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)
    return text if len(data) <= SHOWN_BYTES else f"{text}... ({len(data)} bytes)"


# muster engine status
# --------------------


class SurveyedShard(NamedTuple):
    """owner: a node; NOBODY. leader: the broker of its partition. records: between the ends of its log, those that were
    replaced since among them; -1: not known."""

    number: int
    owner: int
    leader: int
    records: int = -1


class BackendSurvey(NamedTuple):
    """nodes: as dealt; hosts: from where each is a member, by node id, none for one that is not there now."""

    cluster_id: str
    brokers: Mapping[int, str]
    controller: int
    topic: str
    nodes: Sequence[AssignedNode]
    hosts: Mapping[int, str]
    shards: Sequence[SurveyedShard]

    @property
    def unowned(self) -> list[int]:
        return [shard.number for shard in self.shards if shard.owner == NO_LEADER]

    @property
    def leaderless(self) -> list[int]:
        return [shard.number for shard in self.shards if shard.leader == NO_LEADER]


async def survey_backend(upstream: Upstream, cluster: str, topic: str) -> BackendSurvey:
    """Raises UpstreamError, also where there is no state topic."""
    view = await upstream.refresh([topic])
    seen = view.topics.get(topic)
    if seen is None or seen.code:
        raise UpstreamRefused(f"asking for the topic {topic}", 3 if seen is None else seen.code)
    members = await group_requests.fetch_assignments(upstream, f"{cluster}.nodes")
    assignment, hosts = assignment_of(members)
    lengths = await lengths_of(upstream, [(topic, part) for part in seen.parts])
    shards = [
        SurveyedShard(part, owner_of(assignment, part), view.leader(topic, part), lengths.get((topic, part), -1))
        for part in sorted(seen.parts)
    ]
    brokers = {number: f"{host}:{port}" for number, (host, port) in sorted(upstream.view.brokers.items())}
    nodes = sorted(assignment.nodes.values(), key=lambda node: node.node)
    return BackendSurvey(view.cluster_id, brokers, view.controller, topic, nodes, hosts, shards)


def assignment_of(members: Mapping[group_requests.UpstreamMember, bytes]) -> tuple[ShardAssignment, dict[int, str]]:
    """The map that members have, which is the same for all of them, and from where they are there."""
    assignment, hosts = ShardAssignment(), {}
    for member, encoded in members.items():
        try:
            read = decode_assignment(encoded)
        except ValueError:
            continue  # a group of that name that is not of this program
        assignment = read if len(read.nodes) > len(assignment.nodes) else assignment
        # Its member id begins with its instance id: Kafka makes it so for static members.
        node = next((node for node in read.nodes if member.id.startswith(f"node-{node}-")), None)
        if node is not None:
            hosts[node] = member.host
    return assignment, hosts


def owner_of(assignment: ShardAssignment, shard: int) -> int:
    node = assignment.owner_of(shard)
    return NO_LEADER if node is None else node.node


async def lengths_of(upstream: Upstream, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """How many offsets these logs span, as far as their leaders answer."""
    led: dict[int, list[TopicPartition]] = {}
    for place in places:
        led.setdefault(upstream.view.leader(*place), []).append(place)
    led.pop(NO_LEADER, None)
    found: dict[TopicPartition, int] = {}
    for leader, some in led.items():
        try:
            starts = await record_requests.list_offsets(upstream, leader, some, EARLIEST)
            ends = await record_requests.list_offsets(upstream, leader, some)
        except UpstreamError:
            continue
        for place, end in ends.items():
            if not end.code and not starts[place].code:
                found[place] = end.offset - starts[place].offset
    return found
