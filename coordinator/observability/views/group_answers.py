"""A node's answers about groups (protobuf) as the plain values from which rows are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.assignors.data.consumer_protocol import parse_assignment
from muster.client.members.subscription import parse_topics
from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.views.controls import SeenControls, seen_controls
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

Place = tuple[str, int]


class SeenListing(NamedTuple):
    """As `muster.client.described.GroupListing`."""

    group_id: str
    state: str
    protocol_type: str
    group_type: str
    progress: "SeenProgress | None" = None


@dataclass(frozen=True, slots=True)
class SeenMember:
    """As `muster.client.described.MemberDescription`."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: tuple[Place, ...]
    client_software: str


@dataclass(frozen=True, slots=True)
class SeenProgress:
    """As `muster.client.described.GroupProgress`."""

    sampled_ms: int
    lag: int
    trend: float | None
    eta_s: float | None
    health: str
    reason: str


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """As `muster.client.described.GroupDescription`."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    generation: int
    leader: str
    coordinator: str
    members: tuple[SeenMember, ...]
    waiting_for: tuple[str, ...]
    waiting_until_ms: int
    progress: SeenProgress | None = None
    planned_there: str = ""
    assignor_is_set: bool = False
    kept_out: str = ""
    controls: SeenControls = field(default_factory=SeenControls)


@dataclass(frozen=True, slots=True)
class SeenLag:
    """As `muster.client.described.PartitionLag`."""

    partition: Place
    committed: int | None
    log_start: int
    log_end: int
    owner: str

    @property
    def lag(self) -> int:
        return lag_of(self.committed, self.log_start, self.log_end)


def lag_of(committed: int | None, log_start: int, log_end: int) -> int:
    """Records to go, never negative. Without a commit: all that are there (KAFKA-5337)."""
    return log_end - log_start if committed is None else max(0, log_end - committed)


def seen_progress(group: pb.DescribedGroup | pb.ListedGroup) -> SeenProgress | None:
    """None from a node that does not sample its groups, or has not seen this one yet."""
    if not group.HasField("progress"):
        return None
    told = group.progress
    trend = told.trend if told.HasField("trend") else None
    eta_s = told.eta_seconds if told.HasField("eta_seconds") else None
    return SeenProgress(told.sampled_ms, told.lag, trend, eta_s, told.health, told.reason)


def seen_listing(group: pb.ListedGroup) -> SeenListing:
    return SeenListing(group.group_id, group.group_state, group.protocol_type, group.group_type, seen_progress(group))


def seen_member(member: pb.DescribedMember) -> SeenMember:
    return SeenMember(
        member.member_id,
        member.group_instance_id if member.HasField("group_instance_id") else None,
        member.client_id,
        member.client_host,
        parse_topics(member.member_metadata) or tuple(member.subscribed_topic_names),
        share_of(member.member_assignment),
        member.client_software,
    )


def seen_group(group: pb.DescribedGroup, coordinator: str, members: Iterable[SeenMember]) -> SeenGroup:
    """`coordinator` is HOST:PORT of the node that was asked."""
    return SeenGroup(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        group.generation_id,
        group.leader,
        coordinator,
        tuple(members),
        tuple(group.waiting_for),
        group.waiting_until_ms,
        seen_progress(group),
        group.planner.assignor,
        group.planner.by_setting,
        group.planner.kept_out,
        seen_controls(group),
    )


def seen_lags(answer: pb.OffsetFetchResponse, owners: Mapping[Place, str]) -> list[SeenLag]:
    """By topic and partition, of an answer with log offsets; partitions that do not exist are left out."""
    found = [
        SeenLag(
            (topic.name, row.partition_index),
            row.committed_offset if row.committed_offset >= 0 else None,
            row.log_start_offset,
            row.log_end_offset,
            owners.get((topic.name, row.partition_index), ""),
        )
        for topic in answer.topics
        for row in topic.partitions
        if row.HasField("log_end_offset")
    ]
    return sorted(found, key=lambda lag: lag.partition)


def code_word(code: int) -> str:
    """Kafka's word for an error; the number of one that is not known here.

    >>> code_word(22), code_word(12_345)
    ('ILLEGAL_GENERATION', '12345')
    """
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def share_of(blob: bytes) -> tuple[Place, ...]:
    """A share in another protocol's format is shown as none."""
    try:
        shares = parse_assignment(blob).partitions
    except ValueError:
        return ()
    return tuple(sorted((topic, number) for topic, numbers in shares.items() for number in numbers))
