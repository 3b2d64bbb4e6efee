"""What operators control of a group: its balance, its running canary and its fences (docs/control.md), a line each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import TypedDict

from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.overrides import (
    CanaryViewState,
    SeenCanary,
    format_minute,
    seen_canary,
    sentence,
)
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb


class BalanceState(Protocol):
    """As `muster.client.described.GroupBalance`."""

    @property
    def mode(self) -> str: ...
    @property
    def idle(self) -> str: ...
    @property
    def heaviest(self) -> str: ...
    @property
    def ratio(self) -> float | None: ...
    @property
    def paid(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def resting(self) -> int: ...


class FenceState(Protocol):
    """As `muster.client.described.GroupFence`."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def claimed_at_ms(self) -> int: ...


class ControlState(Protocol):
    """The part of a group's description that operators have a hand in."""

    @property
    def canary(self) -> CanaryViewState | None: ...
    @property
    def balance(self) -> BalanceState | None: ...
    @property
    def fences(self) -> int: ...
    @property
    def newest_fences(self) -> Sequence[FenceState]: ...


@dataclass(frozen=True, slots=True)
class SeenBalance:
    mode: str
    idle: str
    heaviest: str
    ratio: float | None
    paid: int
    rounds: int
    resting: int


@dataclass(frozen=True, slots=True)
class SeenFence:
    topic: str
    partition: int
    member_id: str
    generation: int
    producer_id: int
    producer_epoch: int
    claimed_at_ms: int


@dataclass(frozen=True, slots=True)
class SeenControls:
    """`newest_fences`: some of `fences`, those first that were claimed last."""

    canary: SeenCanary | None = None
    balance: SeenBalance | None = None
    fences: int = 0
    newest_fences: tuple[SeenFence, ...] = ()


def seen_controls(group: pb.DescribedGroup) -> SeenControls:
    told = group.balance
    return SeenControls(
        seen_canary(group.canary) if group.HasField("canary") else None,
        SeenBalance(
            told.mode,
            told.idle,
            told.heaviest,
            told.ratio if told.HasField("ratio") else None,
            told.paid,
            told.rounds,
            told.resting,
        )
        if group.HasField("balance")
        else None,
        group.fences.count,
        tuple(
            SeenFence(
                each.topic,
                each.partition,
                each.member_id,
                each.generation,
                each.producer_id,
                each.producer_epoch,
                each.claimed_at_ms,
            )
            for each in group.fences.newest
        ),
    )


class CanaryStateRow(TypedDict):
    state: str
    assignor: str
    former: str
    until_ms: int
    promotes: bool
    rebalances: int


class BalanceRow(TypedDict):
    mode: str
    idle: str | None
    heaviest: str | None
    ratio: float | None
    paid: int
    rounds: int
    resting: int


class FenceRow(TypedDict):
    topic: str
    partition: int
    member_id: str
    generation: int
    producer_id: int
    producer_epoch: int
    claimed_at_ms: int


class FencesRow(TypedDict):
    """`newest`: at most 20 of them, those first that were claimed last."""

    count: int
    newest: list[FenceRow]


def canary_row(found: CanaryViewState | None) -> CanaryStateRow | None:
    if found is None:
        return None
    return {
        "state": found.state,
        "assignor": found.assignor,
        "former": found.former,
        "until_ms": found.until_ms,
        "promotes": found.promotes,
        "rebalances": found.rebalances,
    }


def balance_row(found: BalanceState | None) -> BalanceRow | None:
    if found is None:
        return None
    return {
        "mode": found.mode,
        "idle": found.idle or None,
        "heaviest": found.heaviest or None,
        "ratio": None if found.ratio is None else round(found.ratio, 3),
        "paid": found.paid,
        "rounds": found.rounds,
        "resting": found.resting,
    }


def fences_row(found: ControlState) -> FencesRow | None:
    if not found.fences:
        return None
    newest: list[FenceRow] = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "member_id": each.member_id,
            "generation": each.generation,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "claimed_at_ms": each.claimed_at_ms,
        }
        for each in found.newest_fences
    ]
    return {"count": found.fences, "newest": newest}


def control_lines(found: ControlState) -> Iterator[str]:
    """As `muster groups describe` says it: `FENCES: 3 partitions claimed, last orders-0 by web-1 at 12:31 (...)`."""
    if found.canary is not None:
        yield f"CANARY: {sentence(found.canary).removeprefix('Canary ')}"
    if found.balance is not None:
        yield f"BALANCE: {balance_words(found.balance)}"
    if found.fences:
        yield f"FENCES: {fence_words(found)}"


def balance_words(found: BalanceState) -> str:
    """
    >>> balance_words(SeenBalance("act", "", "web-1", 1.983, 2, 3, 4))
    'act; web-1 carried most, 1.98 times the mean; moves paid in 2 of 3 evaluations in a row; 4 partitions rest'
    >>> balance_words(SeenBalance("watch", "it rests while a canary runs", "", None, 0, 3, 0))
    'watch; it rests while a canary runs'
    """
    parts = [found.mode, found.idle]
    if found.ratio is not None:
        parts.append(f"{found.heaviest} carried most, {found.ratio:.3g} times the mean")
        parts.append(f"moves paid in {found.paid} of {found.rounds} evaluations in a row")
    if found.resting:
        parts.append(f"{plural(found.resting, 'partition')} {'rests' if found.resting == 1 else 'rest'}")
    return "; ".join(part for part in parts if part)


def fence_words(found: ControlState) -> str:
    words = f"{plural(found.fences, 'partition')} claimed"
    for last in found.newest_fences[:1]:
        words += (
            f", last {last.topic}-{last.partition} by {last.member_id} at {format_minute(last.claimed_at_ms)} "
            f"(producer id {last.producer_id}, epoch {last.producer_epoch})"
        )
    return words
