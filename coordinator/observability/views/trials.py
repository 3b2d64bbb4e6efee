"""How another assignor's trial goes (docs/control.md), in a sentence and a row for each guard."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.holds import format_minute
from muster.coordinator.rpc.v1 import control_service_pb2 as pb

STATES = {
    pb.CANARY_STATE_UNSPECIFIED: "",
    pb.CANARY_STATE_CANARY: "canary",
    pb.CANARY_STATE_WAITING: "waiting",
    pb.CANARY_STATE_PROMOTED: "promoted",
    pb.CANARY_STATE_ROLLED_BACK: "rolled back",
}


class CanaryViewState(Protocol):
    """As `muster.client.described.Canary`."""

    @property
    def state(self) -> str: ...
    @property
    def assignor(self) -> str: ...
    @property
    def former(self) -> str: ...
    @property
    def until_ms(self) -> int: ...
    @property
    def promotes(self) -> bool: ...
    @property
    def rebalances(self) -> int: ...
    @property
    def ended(self) -> str: ...


@dataclass(frozen=True, slots=True)
class SeenGuard:
    guard: str
    idle: str
    baseline: float | None
    figure: float | None


@dataclass(frozen=True, slots=True)
class SeenCanary:
    """As `muster.client.described.Canary`."""

    state: str
    assignor: str
    former: str
    until_ms: int
    promotes: bool
    rebalances: int
    ended: str
    guards: Sequence[SeenGuard] = ()

    @property
    def goes_on(self) -> bool:
        return self.state in ("canary", "waiting")


def seen_canary(found: pb.Canary) -> SeenCanary:
    return SeenCanary(
        state=STATES[found.state],
        assignor=found.assignor,
        former=found.former,
        until_ms=found.until_ms,
        promotes=found.promotes,
        rebalances=found.rebalances,
        ended=found.ended,
        guards=tuple(
            SeenGuard(
                each.guard,
                each.idle,
                each.baseline if each.HasField("baseline") else None,
                each.figure if each.HasField("figure") else None,
            )
            for each in found.guards
        ),
    )


def sentence(found: CanaryViewState) -> str:
    """
    >>> sentence(SeenCanary("rolled back", "lag", "range", 0, True, 0, "guard 'expired > 0' tripped"))
    "Canary lag in place of range: rolled back, guard 'expired > 0' tripped."
    """
    begins = f"Canary {found.assignor} in place of {found.former}: "
    if found.state == "canary":
        then = "is promoted" if found.promotes else "waits"
        since = plural(found.rebalances, "rebalance")
        return f"{begins}until {format_minute(found.until_ms)}, then it {then}; {since} since its own."
    if found.state == "waiting":
        return f"{begins}its time was over at {format_minute(found.until_ms)}, it waits for promote or rollback."
    return f"{begins}{found.state}, {found.ended}."


def guard_row(guard: dict[str, Any]) -> dict[str, Any]:
    figures = {key: None if guard[key] is None else f"{guard[key]:.6g}" for key in ("baseline", "figure")}
    return {"guard": guard["guard"], "counts": guard["idle"] or "yes", **figures}
