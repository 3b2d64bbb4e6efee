"""From a node's answers about groups (protobuf) to the read model: the only place that reads these messages."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message

from muster.assignors.data.consumer_protocol import parse_assignment
from muster.assignors.data.values import readable_lag
from muster.client.members.subscription import parse_topics
from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.read_model.commit_history import (
    CommitHistory,
    CommitTraffic,
    CommitTrail,
    SeenPosition,
)
from muster.coordinator.observability.read_model.groups import (
    Canary,
    CanaryGuardStatus,
    ForecastMove,
    GroupBalance,
    GroupControls,
    GroupDescription,
    GroupFence,
    GroupHolds,
    GroupListing,
    GroupProgress,
    HeldDrain,
    HeldPin,
    MemberDescription,
    PartitionLag,
    ReservedShare,
    TopicPartition,
)
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

# Groups and their members
# ------------------------


def map_listing(group: pb.ListedGroup) -> GroupListing:
    return GroupListing(group.group_id, group.group_state, group.protocol_type, group.group_type, map_progress(group))


def map_group(
    group: pb.DescribedGroup, coordinator: str, members: Iterable[MemberDescription] | None = None
) -> GroupDescription:
    """`coordinator` is HOST:PORT of the node that was asked. `members`: of whoever maps those of a large group himself,
    in slices.
    """
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        group.generation_id,
        group.leader,
        coordinator,
        tuple(map(map_member, group.members) if members is None else members),
        tuple(group.waiting_for),
        group.waiting_until_ms,
        map_progress(group),
        group.planner.assignor,
        group.planner.by_setting,
        group.planner.kept_out,
        map_controls(group),
        group.hidden_topics,
        group.watched,
    )


def map_member(member: pb.DescribedMember) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        optional_field(member, "group_instance_id"),
        member.client_id,
        member.client_host,
        parse_topics(member.member_metadata) or tuple(member.subscribed_topic_names),
        parse_share(member.member_assignment),
        member.client_software,
        optional_field(member, "session_timeout_ms"),
        optional_field(member, "rebalance_timeout_ms"),
        optional_field(member, "heartbeat_interval_ms"),
        tuple(member.offered_assignors),
        optional_field(member, "last_heard_ms"),
        member.refused_commits,
        name_code(member.refused_commit_code) if member.refused_commits else "",
        member.taken_over,
    )


def map_progress(group: pb.DescribedGroup | pb.ListedGroup) -> GroupProgress | None:
    """None from a node that does not sample its groups, or has not seen this one yet."""
    if not group.HasField("progress"):
        return None
    told = group.progress
    return GroupProgress(
        told.sampled_ms,
        told.lag,
        optional_field(told, "trend"),
        optional_field(told, "eta_seconds"),
        told.health,
        told.reason,
        optional_field(told, "idle_since_ms"),
        told.trend_window_ms,
    )


def map_lags(
    answers: Iterable[pb.OffsetFetchResponse], owners: Mapping[TopicPartition, str]
) -> dict[TopicPartition, PartitionLag]:
    """Of answers with log offsets; partitions that do not exist are left out."""
    found = {}
    for answer in answers:
        for topic in answer.topics:
            for row in topic.partitions:
                if row.HasField("log_end_offset") or row.log_offsets_unknown:
                    tp = TopicPartition(topic.name, row.partition_index)
                    found[tp] = map_lag(tp, row, owners.get(tp, ""))
    return found


def map_lag(tp: TopicPartition, row: pb.OffsetFetchPartition, owner: str) -> PartitionLag:
    is_committed = row.committed_offset >= 0
    committed = row.committed_offset if is_committed else None
    start, end = log_span_of(row)
    return PartitionLag(
        tp,
        committed,
        start,
        end,
        readable_lag(committed, start, end),
        owner,
        row.commit_timestamp_ms if is_committed and row.commit_timestamp_ms > 0 else None,
    )


def map_commits(answer: pb.OffsetFetchResponse) -> CommitHistory:
    """Of an answer that was asked for commits."""
    trails = {
        TopicPartition(topic.name, row.partition_index): map_trail(row)
        for topic in answer.topics
        for row in topic.partitions
        if row.HasField("trail")
    }
    if not answer.HasField("traffic"):
        return CommitHistory(trails)
    told = answer.traffic
    traffic = CommitTraffic(
        told.records,
        told.from_ms,
        told.to_ms,
        told.kept_in,
        told.partition_own,
        told.partition_records,
        told.topic_records,
    )
    return CommitHistory(trails, traffic)


def map_trail(row: pb.OffsetFetchPartition) -> CommitTrail:
    """With the newest commit as the last sample."""
    trail = row.trail
    counts = trail.counts or [0] * len(trail.offsets)
    found = CommitTrail.of(map(SeenPosition, trail.times_ms, trail.offsets, counts))
    return found.extended(SeenPosition(row.commit_timestamp_ms, row.committed_offset, trail.commits))


def log_span_of(row: pb.OffsetFetchPartition) -> tuple[int, int]:
    """Where its log begins and ends; -1 where that is not known."""
    return (-1, -1) if row.log_offsets_unknown else (row.log_start_offset, row.log_end_offset)


def optional_field(message: Message, name: str) -> Any:
    """The value of an optional field; None where it is absent."""
    return getattr(message, name) if message.HasField(name) else None


def parse_share(blob: bytes) -> tuple[TopicPartition, ...]:
    """A share in another protocol's format is shown as none."""
    try:
        shares = parse_assignment(blob).partitions
    except ValueError:
        return ()
    return tuple(sorted(TopicPartition(topic, number) for topic, numbers in shares.items() for number in numbers))


def name_code(code: int) -> str:
    """Kafka's word for an error; the number of one that is not known here.

    >>> name_code(22), name_code(12_345)
    ('ILLEGAL_GENERATION', '12345')
    """
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


# What operators control
# ----------------------

NAMED_BY: Final = {
    control_pb.NAMED_BY_UNSPECIFIED: "member-id",
    control_pb.NAMED_BY_CLIENT_ID: "client-id",
    control_pb.NAMED_BY_INSTANCE: "instance",
    control_pb.NAMED_BY_HOST: "host",
}
BY_NAME: Final = {word: number for number, word in NAMED_BY.items()}
ORPHANS: Final = {control_pb.ORPHANS_UNSPECIFIED: "", control_pb.ORPHANS_GIVE: "give", control_pb.ORPHANS_KEEP: "keep"}
ORPHANS_OF: Final = {word: number for number, word in ORPHANS.items()}
CANARY_STATES: Final = {
    control_pb.CANARY_STATE_UNSPECIFIED: "",
    control_pb.CANARY_STATE_CANARY: "canary",
    control_pb.CANARY_STATE_WAITING: "waiting",
    control_pb.CANARY_STATE_PROMOTED: "promoted",
    control_pb.CANARY_STATE_ROLLED_BACK: "rolled back",
}


def map_controls(group: pb.DescribedGroup) -> GroupControls:
    return GroupControls(
        map_canary(group.canary) if group.HasField("canary") else None,
        map_balance(group.balance) if group.HasField("balance") else None,
        group.fences.count,
        tuple(map(map_fence, group.fences.newest)),
    )


ForecastAnswer: TypeAlias = (
    control_pb.HoldGroupResponse | control_pb.ResumeGroupResponse | control_pb.StartCanaryResponse
)


def map_forecast_moves(answer: ForecastAnswer) -> tuple[ForecastMove, ...] | None:
    """What changes hands; None where nothing is known of it."""
    if answer.moves_unknown:
        return None
    return tuple(ForecastMove(m.topic, m.partition, m.source or None, m.target or None) for m in answer.moves)


def map_canary(canary: control_pb.Canary) -> Canary:
    return Canary(
        CANARY_STATES[canary.state],
        canary.assignor,
        canary.former,
        canary.operator,
        canary.began_at_ms,
        canary.until_ms,
        canary.promotes,
        tuple(
            CanaryGuardStatus(each.guard, each.idle, optional_field(each, "baseline"), optional_field(each, "figure"))
            for each in canary.guards
        ),
        canary.lag_floor,
        canary.rebalances,
        canary.ended,
    )


def map_balance(balance: control_pb.GroupBalance) -> GroupBalance:
    return GroupBalance(
        balance.mode,
        balance.idle,
        balance.heaviest,
        optional_field(balance, "ratio"),
        balance.paid,
        balance.rounds,
        balance.resting,
    )


def map_fence(fence: control_pb.GroupFence) -> GroupFence:
    return GroupFence(
        fence.topic,
        fence.partition,
        fence.member_id,
        fence.generation,
        fence.producer_id,
        fence.producer_epoch,
        fence.claimed_at_ms,
    )


def map_holds(holds: control_pb.Holds) -> GroupHolds:
    return GroupHolds(
        holds.version,
        ORPHANS[holds.freeze.orphans] if holds.HasField("freeze") else None,
        optional_field(holds, "freeze_until_ms"),
        holds.deploy.expect if holds.HasField("deploy") else None,
        optional_field(holds, "deploy_until_ms"),
        holds.back,
        holds.hold_ms,
        tuple(
            HeldDrain(NAMED_BY[each.drain.by], each.drain.name, optional_field(each, "until_ms"), each.left)
            for each in holds.drains
        ),
        tuple(
            HeldPin(each.pin.topic, each.pin.partition, each.pin.name, optional_field(each, "until_ms"))
            for each in holds.pins
        ),
        tuple(ReservedShare(each.member_id, each.client_id, each.partitions, each.until_ms) for each in holds.shares),
    )
