"""Core replies about groups to protobuf responses; every reply type has one function here. No I/O.

Also decides which partitions of an OffsetCommit exist, and what each of them is answered: the group is asked only
about those that do. A rebalance's history says when the coordinator could not answer: its node stood still, or
another node became coordinator.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar, cast

from muster.assignors.api import JsonValue
from muster.coordinator.core.model import effects
from muster.coordinator.core.model.effects import OffsetCommitReply
from muster.coordinator.core.model.events import OffsetCommit, TxnOffsetCommit
from muster.coordinator.core.model.records import TopicId
from muster.coordinator.core.model.types import (
    FurtherTrigger,
    Incarnation,
    LateFetch,
    ListedGroup,
    MemberPlan,
    PartitionMove,
    PositionChange,
    RebalanceEntry,
    RebalancePhase,
    Score,
    Stall,
    StoredOffset,
    Takeover,
    TopicChange,
)
from muster.coordinator.edge.committed_offsets import PartitionCounts, describe_missing_partition, partition_exists
from muster.coordinator.edge.request_limits import error_sentence
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import errors_pb2, ledger_pb2
from muster.coordinator.runtime.node_status import Condition, RefusedCommits
from muster.long_work import sort_in_runs

# Interruptions of the coordinator
# --------------------------------


def build_stall(stall: Stall) -> ledger_pb2.NodeStall:
    return ledger_pb2.NodeStall(ended_at_ms=stall.ended_at_ms, stalled_ms=stall.stalled_ms)


def build_coordinator_move(takeover: Takeover) -> ledger_pb2.CoordinatorMove:
    return ledger_pb2.CoordinatorMove(
        from_node=takeover.moved_from,
        to_node=takeover.moved_to,
        cause=takeover.cause,
        last_heard_ms=takeover.last_heard_ms,
        elected_ms=takeover.elected_ms,
        serving_ms=takeover.serving_ms,
        groups=takeover.groups,
        members=takeover.members,
        cut=takeover.cut,
    )


Value = TypeVar("Value")

NO_OFFSET = -1
NO_EPOCH = -1


def to_error_code(code: ErrorCode) -> errors_pb2.ErrorCode:
    """The same number, in the type that generated code asks for."""
    return cast(errors_pb2.ErrorCode, code)


def build_condition(known: Condition) -> pb.Condition:
    return pb.Condition(
        name=known.name,
        sentence=known.sentence,
        since_ms=known.since_ms,
        last_ms=known.last_ms,
        count=known.count,
        impairs=known.impairs,
        warning=known.warning,
    )


def build_join_response(reply: effects.JoinReply) -> pb.JoinGroupResponse:
    return pb.JoinGroupResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            pb.JoinGroupMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
        cause=cast(ledger_pb2.RebalanceCause, reply.cause),
        cause_detail=reply.cause_detail,
        rebalance_number=reply.rebalance_number,
        leader_state=reply.leader_state,
        scheduled_delay_ms=reply.scheduled_delay_ms,
    )


def build_sync_response(reply: effects.SyncReply) -> pb.SyncGroupResponse:
    return pb.SyncGroupResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


def build_heartbeat_response(reply: effects.HeartbeatReply) -> pb.HeartbeatResponse:
    if reply.code is ErrorCode.NONE:
        return pb.HeartbeatResponse()
    return pb.HeartbeatResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        cause=cast(ledger_pb2.RebalanceCause, reply.cause),
        cause_detail=reply.cause_detail,
    )


def build_leave_response(reply: effects.LeaveReply) -> pb.LeaveGroupResponse:
    return pb.LeaveGroupResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        members=build_member_results(reply.members),
    )


def build_remove_members_response(reply: effects.LeaveReply) -> pb.RemoveMembersResponse:
    return pb.RemoveMembersResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        members=build_member_results(reply.members),
    )


def build_member_results(members: Iterable[effects.MemberReply]) -> list[pb.MemberResult]:
    return [
        pb.MemberResult(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=to_error_code(member.code),
            error_message=error_sentence(member.code, member.message),
        )
        for member in members
    ]


def build_commit_response(
    codes: Mapping[tuple[str, int], ErrorCode],
    reply: effects.OffsetCommitReply,
    reasons: Mapping[tuple[str, int], str] | None = None,
) -> pb.OffsetCommitResponse:
    """`codes` holds every partition of the request; the top code repeats what all of them share.

    `reasons` says more about a partition than its code does.
    """
    shared = set(codes.values()) if codes else {reply.code}
    top = shared.pop() if len(shared) == 1 else ErrorCode.NONE
    return pb.OffsetCommitResponse(
        error_code=to_error_code(top),
        error_message=error_sentence(top, reply.message if top is reply.code else ""),
        topics=build_offset_results(codes, reply.message if reply.code is not ErrorCode.NONE else "", reasons),
    )


def build_txn_commit_response(
    event: TxnOffsetCommit,
    unknown: frozenset[tuple[str, int]],
    reply: effects.TxnOffsetCommitReply,
    catalog: PartitionCounts,
) -> pb.TxnOffsetCommitResponse:
    """As `build_checked_commit_response`: the answer to a commit in a transaction has the same fields."""
    told = build_checked_commit_response(
        event, unknown, effects.OffsetCommitReply(reply.code, reply.message, reply.partitions), catalog
    )
    return pb.TxnOffsetCommitResponse(error_code=told.error_code, error_message=told.error_message, topics=told.topics)


def build_offset_delete_response(reply: effects.OffsetDeleteReply) -> pb.OffsetDeleteResponse:
    return pb.OffsetDeleteResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        topics=build_offset_results(reply.partitions, ""),
    )


def build_offset_results(
    codes: Mapping[tuple[str, int], ErrorCode], message: str, reasons: Mapping[tuple[str, int], str] | None = None
) -> list[pb.OffsetTopicResult]:
    reasons = reasons or {}
    return [
        pb.OffsetTopicResult(
            name=topic,
            partitions=[
                pb.OffsetPartitionResult(
                    partition_index=partition,
                    error_code=to_error_code(code),
                    error_message=error_sentence(
                        code,
                        reasons.get((topic, partition)) or message or describe_partition_error(topic, partition, code),
                    ),
                )
                for partition, code in partitions
            ],
        )
        for topic, partitions in group_rows_by_topic(codes).items()
    ]


def describe_partition_error(topic: str, partition: int, code: ErrorCode) -> str:
    return f"{topic}-{partition}: {code.meaning}"


def build_offset_fetch_response(
    reply: effects.OffsetFetchReply,
    spans: Mapping[tuple[str, int], tuple[int, int]] | None = None,
    *,
    sort: bool = False,
    in_zookeeper: Collection[tuple[str, int]] = (),
) -> pb.OffsetFetchResponse:
    """`spans`: (log start, log end) of the partitions, when they were asked for. `sort`: by topic and partition.

    `in_zookeeper`: whose position is the one that the group keeps there.
    """
    found: dict[tuple[str, int], pb.OffsetFetchPartition] = {}
    for topic, partition in sort_in_runs(reply.offsets) if sort else reply.offsets:
        stored = reply.offsets[topic, partition]
        found[topic, partition] = build_fetched_offset(partition, stored)
    for (topic, partition), code in reply.refused.items():
        found[topic, partition] = pb.OffsetFetchPartition(
            partition_index=partition,
            committed_offset=NO_OFFSET,
            committed_leader_epoch=NO_EPOCH,
            error_code=to_error_code(code),
        )
    for tp in in_zookeeper:
        found[tp].in_zookeeper = True
    for tp, (start, end) in (spans or {}).items():
        if tp in found:
            found[tp].log_start_offset, found[tp].log_end_offset = start, end
    return pb.OffsetFetchResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        topics=[
            pb.OffsetFetchTopicResult(name=topic, partitions=[row for _, row in rows])
            for topic, rows in group_rows_by_topic(found).items()
        ],
    )


def build_fetched_offset(partition: int, stored: StoredOffset | None) -> pb.OffsetFetchPartition:
    if stored is None:
        return pb.OffsetFetchPartition(
            partition_index=partition, committed_offset=NO_OFFSET, committed_leader_epoch=NO_EPOCH
        )
    return pb.OffsetFetchPartition(
        partition_index=partition,
        committed_offset=stored.offset,
        committed_leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp_ms,
    )


def group_rows_by_topic(rows: Mapping[tuple[str, int], Value]) -> dict[str, list[tuple[int, Value]]]:
    """Rows per topic, in the order in which they came."""
    topics: dict[str, list[tuple[int, Value]]] = {}
    for (topic, partition), value in rows.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


def build_listed_group(group: ListedGroup) -> pb.ListedGroup:
    return pb.ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.group_type,
    )


def build_described_group(group_id: str, reply: effects.DescribeReply) -> pb.DescribedGroup:
    return pb.DescribedGroup(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        group_id=group_id,
        group_state=reply.state,
        protocol_type=reply.protocol_type,
        protocol_data=reply.protocol_name,
        members=[build_described_member(member) for member in reply.members],
        generation_id=reply.generation,
        waiting_for=reply.waiting_for,
        waiting_until_ms=reply.waiting_until_ms,
        leader=reply.leader,
        planner=build_group_planner(reply.planned_by),
    )


def build_group_planner(planner: effects.PlannedBy) -> pb.GroupPlanner:
    return pb.GroupPlanner(assignor=planner.assignor, by_setting=planner.by_setting, kept_out=planner.kept_out)


def build_described_member(member: effects.DescribedMember) -> pb.DescribedMember:
    return pb.DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
        client_software=member.client_software,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        heartbeat_interval_ms=member.heartbeat_interval_ms,
        offered_assignors=member.offers,
        last_heard_ms=member.last_heard_ms,
        subscribed_topic_names=member.topics,
    )


def add_refused_commits(groups: Iterable[pb.DescribedGroup], refused: Mapping[tuple[str, str], RefusedCommits]) -> None:
    """Say of each member how many of its last commits were refused in a row."""
    for group in groups if refused else ():
        for member in group.members:
            if (found := refused.get((group.group_id, member.member_id))) is not None:
                member.refused_commits, member.refused_commit_code = found.in_a_row, to_error_code(found.code)


def add_takeovers(groups: Iterable[pb.DescribedGroup], times: Callable[[str, str], int]) -> None:
    """Say of each static member how often another process came under its instance id: (group, instance id) -> times."""
    for group in groups:
        for member in group.members:
            if member.group_instance_id:
                member.taken_over = times(group.group_id, member.group_instance_id)


def build_deleted_group(group_id: str, reply: effects.DeleteReply) -> pb.DeletedGroup:
    return pb.DeletedGroup(
        group_id=group_id, error_code=to_error_code(reply.code), error_message=error_sentence(reply.code, reply.message)
    )


def build_explanation(
    group_id: str, reply: effects.ExplainReply, *, with_snapshots: bool, room: int
) -> pb.ExplainGroupResponse:
    """Newest first, with the snapshots that fit into `room` bytes; that others were left out is said."""
    response = pb.ExplainGroupResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        stalls=[build_stall(stall) for stall in reply.stalls],
        moves=[build_coordinator_move(takeover) for takeover in reply.takeovers],
    )
    left_out = 0
    for entry in reply.entries:
        size = len(entry.snapshot_json.encode())
        fits = with_snapshots and size <= room
        room -= size if fits else 0
        left_out += with_snapshots and not fits
        response.rebalances.append(build_rebalance(group_id, entry, with_snapshot=fits))
    if left_out:
        response.error_message = f"{left_out} snapshots did not fit into one answer; ask for one generation at a time"
    return response


def build_watch_response(notice: effects.GroupChanged, skipped: int) -> pb.WatchGroupResponse:
    """`skipped` rebalances came while this watcher did not read."""
    entry = notice.entry
    return pb.WatchGroupResponse(
        group_id=notice.group_id,
        group_state=notice.state,
        generation_id=notice.generation,
        rebalance=build_rebalance(notice.group_id, entry, with_snapshot=False) if entry is not None else None,
        skipped_rebalances=skipped,
    )


def build_described_settings(reply: effects.SettingsReply) -> pb.DescribeGroupSettingsResponse:
    return pb.DescribeGroupSettingsResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        version=reply.version,
        settings=encode_settings(reply.values),
        defaults=encode_settings(reply.defaults),
        suspended=reply.suspended,
    )


def build_altered_settings(reply: effects.SettingsReply) -> pb.AlterGroupSettingsResponse:
    return pb.AlterGroupSettingsResponse(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        version=reply.version,
        settings=encode_settings(reply.values),
        defaults=encode_settings(reply.defaults),
        suspended=reply.suspended,
    )


def encode_settings(values: Mapping[str, JsonValue]) -> dict[str, str]:
    return {name: json.dumps(value, sort_keys=True) for name, value in values.items()}


def build_rebalance(group_id: str, entry: RebalanceEntry, *, with_snapshot: bool) -> ledger_pb2.Rebalance:
    """One rebalance as the ledger knows it. Time without an owner is 0 until the rebalance has settled."""
    return ledger_pb2.Rebalance(
        group_id=group_id,
        number=entry.number,
        previous_generation=entry.previous_generation,
        generation=entry.generation,
        protocol_type=entry.protocol_type,
        protocol_name=entry.protocol_name,
        cause=cast(ledger_pb2.RebalanceCause, entry.cause),
        culprit=entry.culprit,
        culprit_client_id=entry.culprit_client_id,
        culprit_client_host=entry.culprit_client_host,
        detail=entry.detail,
        client_reason=entry.client_reason,
        outcome=cast(ledger_pb2.RebalanceOutcome, entry.outcome),
        started_at_ms=entry.started_at_ms,
        ended_at_ms=entry.ended_at_ms,
        phases=[build_phase(of) for of in entry.phases],
        members=[build_member_plan(plan) for plan in entry.members],
        moves=[build_partition_move(move) for move in entry.moves],
        snapshot_json=entry.snapshot_json if with_snapshot else "",
        snapshot_source=entry.snapshot_source,
        also=entry.also,
        unowned_partition_seconds=max(entry.unowned_partition_ms, 0) / 1000,
        herd=entry.herd,
        notifications=entry.notifications,
        positions=[build_position_change(change) for change in entry.positions],
        more_positions=entry.more_positions,
        shadows=[build_plan_score(score) for score in entry.shadows],
        certainty=cast(ledger_pb2.Certainty, entry.certainty),
        evidence=entry.evidence,
        triggers=[build_further_trigger(trigger) for trigger in entry.triggers],
        topics=[build_topic_change(change) for change in entry.topics],
        incarnations=[build_incarnation(incarnation) for incarnation in entry.incarnations],
        late_fetches=[build_late_fetch(late) for late in entry.late_fetches],
        source=cast(ledger_pb2.RebalanceSource, entry.source),
        unowned_at_least_partition_seconds=(
            None if entry.unowned_at_least_partition_ms is None else entry.unowned_at_least_partition_ms / 1000
        ),
    )


def build_further_trigger(trigger: FurtherTrigger) -> ledger_pb2.FurtherTrigger:
    return ledger_pb2.FurtherTrigger(
        cause=cast(ledger_pb2.RebalanceCause, trigger.cause),
        culprit=trigger.culprit,
        culprit_client_id=trigger.culprit_client_id,
        culprit_client_host=trigger.culprit_client_host,
        detail=trigger.detail,
        at_ms=trigger.at_ms,
        certainty=cast(ledger_pb2.Certainty, trigger.certainty),
    )


def build_topic_change(change: TopicChange) -> ledger_pb2.TopicChange:
    return ledger_pb2.TopicChange(
        topic=change.topic,
        kind=cast(ledger_pb2.TopicChangeKind, change.kind),
        before=change.before,
        after=change.after,
        at_ms=change.at_ms,
        by=change.by,
    )


def build_incarnation(incarnation: Incarnation) -> ledger_pb2.Incarnation:
    return ledger_pb2.Incarnation(
        member_id=incarnation.member_id,
        previous_id=incarnation.previous_id,
        away_ms=incarnation.away_ms,
        how=incarnation.how,
    )


def build_late_fetch(late: LateFetch) -> ledger_pb2.LateFetch:
    return ledger_pb2.LateFetch(
        member_id=late.member_id,
        topic=late.topic,
        partitions=late.partitions,
        after_ms=late.after_ms,
        certainty=cast(ledger_pb2.Certainty, late.certainty),
    )


def build_position_change(change: PositionChange) -> ledger_pb2.PositionChange:
    return ledger_pb2.PositionChange(
        topic=change.topic, partition=change.partition, before=change.before, after=change.after
    )


def build_plan_score(score: Score) -> ledger_pb2.PlanScore:
    return ledger_pb2.PlanScore(
        assignor=score.assignor,
        failure=score.failure,
        took_ms=score.took_ms,
        balance_count=score.balance_count,
        balance_lag=score.balance_lag,
        balance_rate=score.balance_rate,
        members=score.members,
        moves=score.moves,
        differs=score.differs,
        unassigned=score.unassigned,
    )


def build_partition_move(move: PartitionMove) -> ledger_pb2.PartitionMove:
    return ledger_pb2.PartitionMove(
        topic=move.topic,
        partition=move.partition,
        source=move.source,
        target=move.target,
        unowned_ms=move.unowned_ms,
        why=move.why,
        unowned_at_least_ms=move.unowned_at_least_ms,
    )


def build_phase(of: RebalancePhase) -> ledger_pb2.RebalancePhase:
    return ledger_pb2.RebalancePhase(
        name=of.name,
        duration_ms=of.duration_ms,
        waited_for=of.waited_for,
        waits=[
            ledger_pb2.PhaseWait(
                member_id=wait.member_id,
                client_id=wait.client_id,
                came=cast(ledger_pb2.WaitEnd, wait.came),
                after_ms=wait.after_ms,
            )
            for wait in of.waits
        ],
    )


def build_member_plan(plan: MemberPlan) -> ledger_pb2.MemberPlan:
    return ledger_pb2.MemberPlan(
        member_id=plan.member_id,
        client_id=plan.client_id,
        client_host=plan.client_host,
        group_instance_id=plan.group_instance_id,
        assigned=[
            ledger_pb2.TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in plan.assigned
        ],
        joined_at_ms=plan.joined_at_ms if plan.joined_at_ms >= 0 else None,
        synced_at_ms=plan.synced_at_ms if plan.synced_at_ms >= 0 else None,
    )


# Consumer groups (KIP-848)
# -------------------------

SPEAKS_CLASSIC = 0
SPEAKS_CONSUMER = 1


def build_consumer_heartbeat_response(reply: effects.ConsumerHeartbeatReply) -> pb.ConsumerGroupHeartbeatResponse:
    if reply.code is not ErrorCode.NONE:
        return pb.ConsumerGroupHeartbeatResponse(
            error_code=to_error_code(reply.code), error_message=error_sentence(reply.code, reply.message)
        )
    return pb.ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None if reply.assignment is None else build_consumer_assignment(reply.assignment, reply.names),
        cause=cast(ledger_pb2.RebalanceCause, reply.cause),
        cause_detail=reply.cause_detail,
        revoke_within_ms=reply.revoke_within_ms,
        coming=None if reply.coming is None else build_consumer_assignment(reply.coming, reply.names),
        heirs_ready=build_consumer_assignment(reply.heirs_ready, reply.names) if reply.heirs_ready else None,
        session_timeout_ms=reply.session_timeout_ms,
    )


def build_consumer_assignment(
    shares: Mapping[TopicId, Iterable[int]], names: Mapping[TopicId, str]
) -> pb.ConsumerAssignment:
    rows = sorted((names.get(topic, ""), topic, sorted(partitions)) for topic, partitions in shares.items())
    return pb.ConsumerAssignment(
        topic_partitions=[
            pb.ConsumerTopicPartitions(topic_id=topic, topic_name=name, partitions=partitions)
            for name, topic, partitions in rows
        ]
    )


def build_described_consumer_group(group_id: str, reply: effects.DescribeConsumerReply) -> pb.DescribedConsumerGroup:
    return pb.DescribedConsumerGroup(
        error_code=to_error_code(reply.code),
        error_message=error_sentence(reply.code, reply.message),
        group_id=group_id,
        group_state=reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.target_epoch,
        assignor_name=reply.assignor,
        members=[build_consumer_member(view, reply.names) for view in reply.members],
        waiting_for=reply.waiting_for,
        waiting_until_ms=reply.waiting_until_ms,
    )


def build_consumer_member(view: effects.ConsumerMemberView, names: Mapping[TopicId, str]) -> pb.ConsumerGroupMember:
    held = {topic: set(partitions) for topic, partitions in view.assigned.items()}
    for topic, partitions in view.revoking.items():
        held.setdefault(topic, set()).update(partitions)
    return pb.ConsumerGroupMember(
        member_id=view.member_id,
        group_instance_id=view.instance_id,
        rack_id=view.rack_id,
        member_epoch=view.epoch,
        client_id=view.client_id,
        client_host=view.client_host,
        subscribed_topic_names=view.topic_names,
        subscribed_topic_regex=view.topic_regex,
        assignment=build_consumer_assignment(held, names),
        target_assignment=build_consumer_assignment(view.target, names),
        member_type=SPEAKS_CLASSIC if view.classic else SPEAKS_CONSUMER,
        member_state=view.state,
    )


# Offset commits
# --------------


PositionsToCommit: TypeAlias = OffsetCommit | TxnOffsetCommit
AnyCommit = TypeVar("AnyCommit", OffsetCommit, TxnOffsetCommit)


def separate_unknown_partitions(
    event: AnyCommit, catalog: PartitionCounts
) -> tuple[AnyCommit, frozenset[tuple[str, int]]]:
    """The commit without the partitions that the catalog does not have, and these. In any thread."""
    unknown = frozenset(tp for tp in event.offsets if not partition_exists(catalog, *tp))
    if not unknown:
        return event, unknown
    return replace(event, offsets={tp: at for tp, at in event.offsets.items() if tp not in unknown}), unknown


def build_checked_commit_response(
    event: PositionsToCommit, unknown: frozenset[tuple[str, int]], reply: OffsetCommitReply, catalog: PartitionCounts
) -> pb.OffsetCommitResponse:
    """`reply` is what the group said of those that are known."""
    codes = {
        tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if tp in unknown else reply.partitions.get(tp, reply.code)
        for tp in event.offsets
    }
    reasons = {
        tp: explain_refused_commit(*tp, metadata, codes[tp], catalog)
        for tp, (_, _, metadata) in event.offsets.items()
        if codes[tp] is not ErrorCode.NONE
    }
    return build_commit_response(codes, reply, reasons)


def explain_refused_commit(topic: str, partition: int, metadata: str, code: ErrorCode, catalog: PartitionCounts) -> str:
    """Value, expectation and remedy for one partition of a commit; empty when the code says it all."""
    if code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
        return (
            f"{topic}-{partition}: the metadata has {len(metadata)} characters, more than "
            "offset.metadata.max.bytes allows; shorten it, or raise the limit"
        )
    if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ""
    return describe_missing_partition(catalog, topic, partition)
