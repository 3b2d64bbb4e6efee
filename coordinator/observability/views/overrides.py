"""Operator overrides of a group and its canary (docs/control.md): values, rows, and a line each for people.

Rows and lines are made from anything with the attributes of the client's `GroupHolds` and `Canary`; the `Seen`
classes read them from a node's own answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from typing_extensions import TypedDict

from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.rpc.v1 import control_service_pb2 as pb

# Overrides: freeze, deploy, drains, pins
# ---------------------------------------

NAMED_BY = {
    pb.NAMED_BY_UNSPECIFIED: "member-id",
    pb.NAMED_BY_CLIENT_ID: "client-id",
    pb.NAMED_BY_INSTANCE: "instance",
    pb.NAMED_BY_HOST: "host",
}
BY_NAME = {word: number for number, word in NAMED_BY.items()}
ORPHANS = {pb.ORPHANS_UNSPECIFIED: "", pb.ORPHANS_GIVE: "give", pb.ORPHANS_KEEP: "keep"}
ORPHANS_OF = {word: number for number, word in ORPHANS.items()}


class DrainState(Protocol):
    @property
    def by(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def until_ms(self) -> int | None: ...
    @property
    def left(self) -> int: ...


class PinState(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def until_ms(self) -> int | None: ...


class WaitingShareState(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def until_ms(self) -> int | None: ...


class OverrideState(Protocol):
    """As `muster.client.described.GroupHolds`."""

    @property
    def version(self) -> int: ...
    @property
    def orphans(self) -> str | None: ...
    @property
    def freeze_until_ms(self) -> int | None: ...
    @property
    def expect(self) -> int | None: ...
    @property
    def deploy_until_ms(self) -> int | None: ...
    @property
    def back(self) -> int: ...
    @property
    def drains(self) -> Sequence[DrainState]: ...
    @property
    def pins(self) -> Sequence[PinState]: ...
    @property
    def shares(self) -> Sequence[WaitingShareState]: ...


@dataclass(frozen=True, slots=True)
class SeenDrain:
    by: str
    name: str
    until_ms: int | None
    left: int


@dataclass(frozen=True, slots=True)
class SeenPin:
    topic: str
    partition: int
    name: str
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class SeenShare:
    member_id: str
    client_id: str
    partitions: int
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class SeenHolds:
    """As `muster.client.described.GroupHolds`."""

    version: int = 0
    orphans: str | None = None
    freeze_until_ms: int | None = None
    expect: int | None = None
    deploy_until_ms: int | None = None
    back: int = 0
    drains: tuple[SeenDrain, ...] = ()
    pins: tuple[SeenPin, ...] = ()
    shares: tuple[SeenShare, ...] = ()


def seen_holds(found: pb.Holds) -> SeenHolds:
    return SeenHolds(
        version=found.version,
        orphans=ORPHANS[found.freeze.orphans] if found.HasField("freeze") else None,
        freeze_until_ms=found.freeze_until_ms if found.HasField("freeze_until_ms") else None,
        expect=found.deploy.expect if found.HasField("deploy") else None,
        deploy_until_ms=found.deploy_until_ms if found.HasField("deploy_until_ms") else None,
        back=found.back,
        drains=tuple(
            SeenDrain(NAMED_BY[each.drain.by], each.drain.name, read_until_ms(each), each.left) for each in found.drains
        ),
        pins=tuple(
            SeenPin(each.pin.topic, each.pin.partition, each.pin.name, read_until_ms(each)) for each in found.pins
        ),
        shares=tuple(
            SeenShare(each.member_id, each.client_id, each.partitions, each.until_ms) for each in found.shares
        ),
    )


def read_until_ms(held: pb.HeldDrain | pb.HeldPin) -> int | None:
    return held.until_ms if held.HasField("until_ms") else None


class HoldRow(TypedDict):
    group: str
    version: int
    held: str
    until: str | None
    """To the minute, on this machine's clock, for people."""
    until_ms: int | None


def hold_rows(group: str, holds: OverrideState) -> list[HoldRow]:
    return [
        {
            "group": group,
            "version": holds.version,
            "held": words,
            "until": None if ms is None else format_minute(ms),
            "until_ms": ms,
        }
        for words, ms in override_words(holds)
    ]


def hold_lines(holds: OverrideState) -> list[str]:
    """As `muster groups describe` says it: `HELD: deploy until 12:31, 7 of 10 back`."""
    lines = []
    for words, ms in override_words(holds):
        first, comma, more = words.partition(", ")
        lines.append(f"HELD: {first}{'' if ms is None else f' until {format_minute(ms)}'}{comma}{more}")
    return lines


def override_words(holds: OverrideState) -> Iterator[tuple[str, int | None]]:
    if holds.orphans is not None:
        left = "stays without one" if holds.orphans == "keep" else "goes to whoever has least"
        yield f"freeze, what loses its owner {left}", holds.freeze_until_ms
    if holds.expect is not None:
        yield f"deploy, {holds.back} of {holds.expect} back", holds.deploy_until_ms
    for pin in holds.pins:
        yield f"pin {pin.topic}-{pin.partition} to {pin.name}", pin.until_ms
    for drain in holds.drains:
        by = "" if drain.by == "member-id" else f"{drain.by} "
        yield f"drain {by}{drain.name}, {plural(drain.left, 'partition')} still to move", drain.until_ms
    for share in holds.shares:
        who = share.client_id or share.member_id
        yield f"share of {who}, {plural(share.partitions, 'partition')} wait for an heir", share.until_ms


def format_minute(epoch_ms: int) -> str:
    """Local time, to the minute: with its day unless that is today's."""
    then = datetime.fromtimestamp(epoch_ms / 1000)
    return then.strftime("%H:%M" if then.date() == datetime.now().date() else "%Y-%m-%d %H:%M")


# The canary
# ----------

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
