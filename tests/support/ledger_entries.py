"""Entries of a group's ledger, made by hand: members by one letter, times in seconds."""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import MemberPlan, PartitionMove, PhaseWait, Rebalance, RebalancePhase

BEGIN_MS = 1_700_000_000_000


def member_id(name: str) -> str:
    """`a` is the first process of client a, `a2` its second: the id differs, the client id and host do not."""
    return f"{client_of(name)}-{int(name[1:] or 1):08x}-0000-4000-8000-{ord(name[0]):012x}"


def client_of(name: str) -> str:
    return name[0]


def plan_of(names: Iterable[str]) -> list[MemberPlan]:
    return [
        MemberPlan(member_id=member_id(name), client_id=client_of(name), client_host=f"10.0.0.{ord(name[0]) - 96}")
        for name in names
    ]


def ledger_entry(
    number: int,
    cause: str,
    at_s: float,
    members: Iterable[str] = (),
    *,
    by: str = "",
    outcome: str = "COMPLETED",
    took_s: float = 0.1,
    moves: Iterable[tuple[str, str]] = (),
    waits: Mapping[str, tuple[str, float]] | None = None,
    **more: Any,
) -> Rebalance:
    """`moves`: from whom to whom, a partition each. `waits`: for whom its join phase waited, how that ended, and when
    in seconds."""
    waited = [
        PhaseWait(
            member_id=member_id(name),
            client_id=client_of(name),
            came=ledger_pb2.WaitEnd.Value(f"WAIT_END_{came}"),
            after_ms=round(after_s * 1000),
        )
        for name, (came, after_s) in (waits or {}).items()
    ]
    phase = RebalancePhase(
        name="join", duration_ms=round(took_s * 1000), waited_for=[wait.member_id for wait in waited], waits=waited
    )
    given: dict[str, Any] = {
        "group_id": "g",
        "culprit": member_id(by) if by else "",
        "culprit_client_id": client_of(by) if by else "",
        "culprit_client_host": f"10.0.0.{ord(by[0]) - 96}" if by else "",
        "detail": f"member {member_id(by)} ({client_of(by)}, librdkafka 2.3 at 10.0.0.1) did it" if by else "",
        "certainty": ledger_pb2.CERTAINTY_RECORDED,
    } | more
    return Rebalance(
        number=number,
        previous_generation=number - 1,
        generation=number,
        cause=ledger_pb2.RebalanceCause.Value(f"REBALANCE_CAUSE_{cause}"),
        outcome=ledger_pb2.RebalanceOutcome.Value(f"REBALANCE_OUTCOME_{outcome}"),
        started_at_ms=BEGIN_MS + round(at_s * 1000),
        ended_at_ms=BEGIN_MS + round((at_s + took_s) * 1000),
        phases=[phase],
        members=plan_of(members),
        moves=[
            PartitionMove(
                topic="t",
                partition=at,
                source=member_id(source) if source else "",
                target=member_id(target) if target else "",
                unowned_ms=100 if target else -1,
            )
            for at, (source, target) in enumerate(moves)
        ],
        **given,
    )
