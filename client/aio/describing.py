"""What a node answers about itself and its groups, as values of the admin client."""

import json
from dataclasses import astuple

from google.protobuf.message import Message

from muster.client.aio.controls import read_controls
from muster.client.described import (
    GroupDescription,
    GroupListing,
    GroupProgress,
    GroupSettings,
    MemberDescription,
    NodeCondition,
    NodeStatus,
)
from muster.client.members.subscription import parse_topics
from muster.client.types import TopicPartition
from muster.coordinator.observability.views import group_answers
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb


def read_group(group: group_pb.DescribedGroup, address: str) -> GroupDescription:
    members = tuple(
        MemberDescription(
            m.member_id,
            m.group_instance_id if m.HasField("group_instance_id") else None,
            m.client_id,
            m.client_host,
            parse_topics(m.member_metadata) or tuple(m.subscribed_topic_names),
            read_share(m.member_assignment),
            m.client_software,
            read_optional(m, "session_timeout_ms"),
            read_optional(m, "rebalance_timeout_ms"),
            read_optional(m, "heartbeat_interval_ms"),
            tuple(m.offered_assignors),
            read_optional(m, "last_heard_ms"),
            m.refused_commits,
            group_answers.code_word(m.refused_commit_code) if m.refused_commits else "",
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
        read_progress(group),
        group.planner.assignor,
        group.planner.by_setting,
        group.planner.kept_out,
        read_controls(group),
    )


def read_group_listing(group: group_pb.ListedGroup) -> GroupListing:
    return GroupListing(group.group_id, group.group_state, group.protocol_type, group.group_type, read_progress(group))


def read_progress(group: group_pb.DescribedGroup | group_pb.ListedGroup) -> GroupProgress | None:
    progress = group_answers.seen_progress(group)
    return None if progress is None else GroupProgress(*astuple(progress))


def read_optional(message: Message, name: str) -> int | None:
    """An optional number; None where it is absent."""
    return int(getattr(message, name)) if message.HasField(name) else None


def read_node_status(answer: group_pb.DescribeNodeResponse) -> NodeStatus:
    conditions = tuple(NodeCondition(c.name, c.sentence, c.since_ms, c.count, c.impairs) for c in answer.conditions)
    if not answer.HasField("resources"):
        return NodeStatus(answer.now_ms or None, conditions)
    has = answer.resources
    return NodeStatus(
        answer.now_ms,
        conditions,
        read_optional(has, "open_descriptors"),
        read_optional(has, "descriptor_limit"),
        read_optional(has, "resident_bytes"),
        read_optional(has, "memory_bytes"),
        read_optional(has, "disk_free_bytes"),
        read_optional(has, "disk_total_bytes"),
        has.loop_late_ms,
        has.stalls,
        has.stalled_ms,
        has.started_at_ms,
    )


def read_share(blob: bytes) -> tuple[TopicPartition, ...]:
    """A share in another protocol's format is shown as none."""
    return tuple(TopicPartition(*place) for place in group_answers.share_of(blob))


def read_group_settings(
    answer: group_pb.DescribeGroupSettingsResponse | group_pb.AlterGroupSettingsResponse,
) -> GroupSettings:
    values, defaults = (
        {name: json.loads(text) for name, text in sorted(told.items())} for told in (answer.settings, answer.defaults)
    )
    return GroupSettings(answer.version, values, defaults, answer.suspended)
