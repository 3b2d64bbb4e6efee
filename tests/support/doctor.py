"""Groups, members and rebalances as the doctor sees them, and what it finds in them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from muster.assignors.data.values import readable_lag
from muster.coordinator.observability.doctor.model import (
    DoctorFacts,
    DoctorFinding,
    ExaminedGroup,
    ExaminedNode,
)
from muster.coordinator.observability.doctor.table import examine_facts
from muster.coordinator.observability.read_model.groups import (
    GroupDescription,
    MemberDescription,
    PartitionLag,
    TopicPartition,
)
from muster.coordinator.rpc.v1.ledger_pb2 import MemberPlan, Rebalance, RebalanceCause, RebalanceOutcome

NOW = 10_000_000
MINUTE = 60_000


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def member(name: str = "a", owned: Iterable[int] = (), **more: Any) -> MemberDescription:
    given: dict[str, Any] = {"group_instance_id": None, "client_id": name, "client_host": "h", "topics": ("t",)} | more
    return MemberDescription(name, assignment=tuple(tp(p) for p in owned), **given)


OF_ITS_DESCRIPTION = ("assignor", "generation", "kept_out", "leader", "waiting_for", "waiting_until_ms")


def group(*members: MemberDescription, name: str = "g", state: str = "Stable", **more: Any) -> ExaminedGroup:
    told = {key: more.pop(key) for key in OF_ITS_DESCRIPTION if key in more}
    empty = GroupDescription(name, state, "consumer", "", 0, "", "here:1", members)
    return ExaminedGroup(replace(empty, **told), **more)


def described_as(group: ExaminedGroup, **told: Any) -> ExaminedGroup:
    """The same with something else in its description."""
    return replace(group, description=replace(group.description, **told))


def entry(number: int, cause: str = "MEMBER_JOINED", ago_ms: int = MINUTE, **more: Any) -> Rebalance:
    members = [
        MemberPlan(member_id=m, client_id=m.partition("/")[0], client_host="h", group_instance_id=more.get("instance"))
        for m in more.get("members", ())
    ]
    return Rebalance(
        number=number,
        cause=RebalanceCause.Value("REBALANCE_CAUSE_" + cause),
        outcome=RebalanceOutcome.Value("REBALANCE_OUTCOME_" + more.get("outcome", "COMPLETED")),
        started_at_ms=NOW - ago_ms,
        ended_at_ms=NOW - ago_ms + 1_000,
        culprit=more.get("culprit", "a"),
        culprit_client_id=more.get("client", "a"),
        culprit_client_host=more.get("host", "h"),
        members=members,
    )


def at(committed: int | None, end: int, age_ms: int = 0) -> PartitionLag:
    return PartitionLag(tp(0), committed, 0, end, readable_lag(committed, 0, end), "", NOW - age_ms)


def found(
    rule: str,
    *groups: ExaminedGroup,
    node: ExaminedNode | None = None,
    topics: Mapping[str, int] | None = None,
    untold: tuple[str, ...] = (),
) -> list[DoctorFinding]:
    facts = DoctorFacts(NOW, node or ExaminedNode(), groups, {"t": 4} if topics is None else topics, untold)
    return [finding for finding in examine_facts(facts) if finding.rule == rule]


def only(rule: str, *groups: ExaminedGroup, **more: Any) -> DoctorFinding:
    (finding,) = found(rule, *groups, **more)
    return finding
