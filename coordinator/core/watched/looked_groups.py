"""Groups whose records nobody may read, as descriptions of them tell: who is in them and owns what, and, from one
description to the next, who came and who is gone.

A description tells neither generations nor times nor how a member went, so nothing that is concluded here is recorded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.coordinator.core.groups.member_causes import name_few
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentDeleted,
    CurrentStored,
    GroupEpochStored,
    GroupStored,
    MemberRecord,
    Record,
    TargetDeleted,
    TargetEpochStored,
    TargetStored,
    TopicId,
)
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    MemberPlan,
    Outcome,
    PartitionMove,
    RebalanceEntry,
    RebalanceSource,
)

NO_GENERATION = 0
"""Descriptions of classic groups tell none, and no round has this one."""

BY_LOOKS = "seen by looking at the group now and then: its records cannot be read"

Share = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class LookedMember:
    """subscription, assignment: of a classic member, as bytes. topics: that a KIP-848 member subscribes to."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    share: Share
    subscription: bytes = b""
    assignment: bytes = b""
    topics: tuple[str, ...] = ()
    regex: str | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class LookedGroup:
    """modern: it is a KIP-848 group; epoch: its own, or NO_GENERATION."""

    id: str
    protocol_type: str
    protocol: str
    members: Mapping[str, LookedMember]
    modern: bool = False
    epoch: int = NO_GENERATION


def facts_of(before: LookedGroup | None, now: LookedGroup, ids: Mapping[str, TopicId], now_ms: int) -> list[Record]:
    """What a shard learns, as if a record said it. ids: of topics by name; others' partitions are left out."""
    if not now.modern:
        members = tuple(
            MemberRecord(
                each.id, each.instance_id, each.client_id, each.client_host, 0, 0, each.subscription, each.assignment
            )
            for each in now.members.values()
        )
        return [GroupStored(now.id, now.protocol_type, NO_GENERATION, now.protocol or None, None, now_ms, members)]
    facts: list[Record] = []
    for gone in () if before is None else before.members.keys() - now.members.keys():
        facts += [CurrentDeleted(now.id, gone), TargetDeleted(now.id, gone), ConsumerMemberDeleted(now.id, gone)]
    facts += [
        ConsumerMemberStored(
            now.id, each.id, each.instance_id, None, each.client_id, each.client_host, each.topics, each.regex, 0, None
        )
        for each in now.members.values()
    ]
    facts.append(GroupEpochStored(now.id, now.epoch))
    for each in now.members.values():
        held = {ids[topic]: partitions for topic, partitions in each.share.items() if topic in ids}
        assigned = {topic: dict.fromkeys(partitions, each.epoch) for topic, partitions in held.items()}
        facts.append(
            TargetStored(now.id, each.id, {topic: frozenset(partitions) for topic, partitions in held.items()})
        )
        facts.append(CurrentStored(now.id, each.id, each.epoch, each.epoch, 0, assigned, {}))
    return [*facts, TargetEpochStored(now.id, now.epoch, now_ms)]


def entry_of(before: LookedGroup, now: LookedGroup, now_ms: int) -> RebalanceEntry | None:
    """The rebalance that lies between two descriptions, however many it were; None: nothing differs."""
    owners, heirs = owners_of(before.members.values()), owners_of(now.members.values())
    came = [each for each in now.members if each not in before.members]
    gone = [each for each in before.members if each not in now.members]
    if not came and not gone and owners == heirs:
        return None
    cause, certainty, culprit = cause_of(came, gone)
    member = now.members.get(culprit) or before.members.get(culprit)
    said = [f"joined: {name_few(came)}"] if came else []
    said += [f"left, or their sessions expired: {name_few(gone)}"] if gone else []
    return RebalanceEntry(
        number=0,
        previous_generation=before.epoch,
        generation=now.epoch,
        protocol_type=now.protocol_type,
        protocol_name=now.protocol,
        cause=cause,
        culprit=culprit,
        culprit_client_id="" if member is None else member.client_id,
        culprit_client_host="" if member is None else member.client_host,
        detail="; ".join(said) or "partitions changed their owners, and the members are the same",
        client_reason="",
        outcome=Outcome.COMPLETED if now.members else Outcome.EMPTIED,
        started_at_ms=now_ms,
        ended_at_ms=now_ms,
        members=tuple(plan_of(each) for each in now.members.values()),
        moves=tuple(
            PartitionMove(*place, owners.get(place, ""), heirs.get(place, ""), -1, "")
            for place in sorted(owners.keys() | heirs.keys())
            if owners.get(place, "") != heirs.get(place, "")
        ),
        certainty=certainty,
        evidence=BY_LOOKS,
        source=RebalanceSource.WATCHED,
    )


def cause_of(came: list[str], gone: list[str]) -> tuple[Cause, Certainty, str]:
    """With the member that set it off; "": it was more than one, or nobody."""
    if came and not gone:
        return Cause.MEMBER_JOINED, Certainty.INFERRED, came[0] if len(came) == 1 else ""
    if gone and not came:
        return Cause.MEMBER_LEFT, Certainty.UNKNOWN, gone[0] if len(gone) == 1 else ""
    return Cause.UNSPECIFIED, Certainty.UNKNOWN, ""


def owners_of(members: Iterable[LookedMember]) -> dict[tuple[str, int], str]:
    return {(topic, each): member.id for member in members for topic, held in member.share.items() for each in held}


def plan_of(member: LookedMember) -> MemberPlan:
    share = tuple(sorted((topic, tuple(sorted(held))) for topic, held in member.share.items()))
    return MemberPlan(member.id, member.client_id, member.client_host, member.instance_id, share)


def is_consumer(protocol_type: str) -> bool:
    """Whether shares are Kafka's: those of others, such as Connect's, are not read."""
    return protocol_type == CONSUMER
