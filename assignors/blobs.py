"""From subscription bytes to assignment bytes: what the leader of a classic group does in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.assignors.api import FAST_FROM, Assignment, Assignor, JsonValue, Snapshot
from muster.assignors.data.consumer_protocol import NEWEST, TopicLists, encode_assignment, member_from_subscription
from muster.assignors.data.consumer_protocol import SubscribedMember as SubscribedMember
from muster.assignors.run import run


@dataclass(frozen=True, slots=True)
class LeaderTopics:
    """What the leader knows of the topics; fields as in `Snapshot`."""

    topics: Mapping[str, int]
    lags: Mapping[str, Sequence[int]] | None = None
    racks: Mapping[str, Sequence[Sequence[str]]] | None = None


def assign_bytes(
    assignor: Assignor,
    members: Sequence[SubscribedMember],
    cluster: LeaderTopics,
    options: Mapping[str, JsonValue] | None = None,
) -> tuple[Assignment, dict[str, bytes]]:
    """Decode, decide, encode: the assignment, and for each member the bytes for SyncGroup.

    Raises ValueError for a subscription that cannot be read, AssignorError for an assignor that fails.
    """
    snapshot = read_group(assignor.name, members, cluster, options)
    assignment = run(assignor, snapshot)
    return assignment, write_shares(assignment)


def read_group(
    assignor: str,
    members: Sequence[SubscribedMember],
    cluster: LeaderTopics,
    options: Mapping[str, JsonValue] | None = None,
) -> Snapshot:
    """The snapshot that the subscriptions describe."""
    found = None
    if sum(cluster.topics.values()) >= FAST_FROM:
        from muster.assignors import columns as wire_columns

        found = wire_columns.member_table(assignor, members, cluster.topics)
    lists = TopicLists()
    return Snapshot(
        topics=cluster.topics,
        members=found
        if found is not None
        else [
            member_from_subscription(joined.member_id, joined.instance_id, joined.metadata, assignor, lists)
            for joined in members
        ],
        lags=cluster.lags,
        racks=cluster.racks,
        assignor=assignor,
        options=options or {},
    )


def write_shares(assignment: Assignment, version: int = NEWEST) -> dict[str, bytes]:
    """Each member's assignment as bytes."""
    if hasattr(assignment.members, "owner"):
        from muster.assignors import shares as wire_shares
        from muster.assignors.data.columns import OwnerTable

        if isinstance(assignment.members, OwnerTable):
            return wire_shares.encode_shares(assignment.members, version)
    return {member: encode_assignment(share, None, version) for member, share in assignment.members.items()}
