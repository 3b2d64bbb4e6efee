"""What a node answers about itself and its groups, as values of the admin client."""

import json
from dataclasses import astuple

from google.protobuf.message import Message

from muster.coordinator.client.calls.controls import controls_of
from muster.coordinator.client.described import (
    GroupDescription,
    GroupListing,
    GroupProgress,
    GroupSettings,
    MemberDescription,
    NodeCondition,
    NodeStatus,
)
from muster.coordinator.client.types import TopicPartition
from muster.coordinator.member.classic.subscription import topics_of
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.views import seen


def described(group: group_pb.DescribedGroup, address: str) -> GroupDescription:
    members = tuple(
        MemberDescription(
            m.member_id,
            m.group_instance_id if m.HasField("group_instance_id") else None,
            m.client_id,
            m.client_host,
            topics_of(m.member_metadata) or tuple(m.subscribed_topic_names),
            share_of(m.member_assignment),
            m.client_software,
            given(m, "session_timeout_ms"),
            given(m, "rebalance_timeout_ms"),
            given(m, "heartbeat_interval_ms"),
            tuple(m.offered_assignors),
            given(m, "last_heard_ms"),
            m.refused_commits,
            seen.code_word(m.refused_commit_code) if m.refused_commits else "",
            m.taken_over,
        )
        for m in group.members
    )
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        group.generation_id,
        group.leader,
        address,
        members,
        tuple(group.waiting_for),
        group.waiting_until_ms,
        progress_of(group),
        group.planner.assignor,
        group.planner.by_setting,
        group.planner.kept_out,
        controls_of(group),
    )


def listing(group: group_pb.ListedGroup) -> GroupListing:
    return GroupListing(group.group_id, group.group_state, group.protocol_type, group.group_type, progress_of(group))


def progress_of(group: group_pb.DescribedGroup | group_pb.ListedGroup) -> GroupProgress | None:
    progress = seen.seen_progress(group)
    return None if progress is None else GroupProgress(*astuple(progress))


def given(message: Message, name: str) -> int | None:
    """An optional number; None where it is absent."""
    return int(getattr(message, name)) if message.HasField(name) else None


def status_of(answer: group_pb.DescribeNodeResponse) -> NodeStatus:
    conditions = tuple(NodeCondition(c.name, c.sentence, c.since_ms, c.count, c.impairs) for c in answer.conditions)
    if not answer.HasField("resources"):
        return NodeStatus(answer.now_ms or None, conditions)
    has = answer.resources
    return NodeStatus(
        answer.now_ms,
        conditions,
        given(has, "open_descriptors"),
        given(has, "descriptor_limit"),
        given(has, "resident_bytes"),
        given(has, "memory_bytes"),
        given(has, "disk_free_bytes"),
        given(has, "disk_total_bytes"),
        has.loop_late_ms,
        has.stalls,
        has.stalled_ms,
        has.started_at_ms,
    )


def share_of(blob: bytes) -> tuple[TopicPartition, ...]:
    """A share in another protocol's format is shown as none."""
    return tuple(TopicPartition(*place) for place in seen.share_of(blob))


def settings_of(
    answer: group_pb.DescribeGroupSettingsResponse | group_pb.AlterGroupSettingsResponse,
) -> GroupSettings:
    values, defaults = (
        {name: json.loads(text) for name, text in sorted(told.items())} for told in (answer.settings, answer.defaults)
    )
    return GroupSettings(answer.version, values, defaults, answer.suspended)
