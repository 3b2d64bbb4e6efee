"""What the parts of the controller share while it reigns: the book, the work that waits, and the effects of a step."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller.book import ControllerState
from muster.coordinator.replication.protocol.controller.effects import (
    AdminMarker,
    AdminResult,
    ControllerEffect,
    RemoveMarker,
    Respond,
    ResponseBody,
    WarnOperator,
)
from muster.coordinator.replication.protocol.controller.events import RequestId
from muster.coordinator.replication.protocol.facts import OFFSETS, TopicPartition


class ReviewReason(NamedTuple):
    """Why a unit is looked at, and since when it waits."""

    cause: str
    since_ms: int


class AdmitNode(NamedTuple):
    """When all that stands before it has been written: a node's former life is dead, and it returns (CL-C7)."""

    node: int
    epoch: int


class ConfirmNode(NamedTuple):
    """When all that stands before it has been written: what a node leads has been elected in this reign."""

    node: int


class PublishTopicSettings(NamedTuple):
    """When all that stands before it has been written: a topic's settings may be told (CL-C5)."""

    name: str


class StartPublishing(NamedTuple):
    """When all that stands before it has been written: nodes may be told."""


ReviewMark = StartPublishing | AdmitNode | ConfirmNode | PublishTopicSettings
ReviewItem = TopicPartition | ReviewMark


@dataclass(slots=True)
class ReviewQueue:
    """Units to look at, each once: shards first. A mark stands behind the units that it waits for."""

    shards: dict[TopicPartition, ReviewReason] = field(default_factory=dict)
    rest: dict[ReviewItem, ReviewReason] = field(default_factory=dict)
    mend: set[TopicPartition] = field(default_factory=set)
    """Shards whose halves differ in ZooKeeper."""

    def add(self, unit: TopicPartition, reason: ReviewReason) -> None:
        """A unit that waits already keeps its reason, and its place."""
        if unit.topic == OFFSETS:
            self.shards.setdefault(unit, reason)
        else:
            self.rest.setdefault(unit, reason)

    def mark(self, mark: ReviewMark, now_ms: int) -> None:
        """Behind all that waits now; one that stands further before goes to the end."""
        self.rest.pop(mark, None)
        self.rest[mark] = ReviewReason("", now_ms)

    def marks_last(self) -> None:
        """Units that were decided wait again, and each may be one that a mark waits for."""
        for mark in [item for item in self.rest if not isinstance(item, TopicPartition)]:
            self.rest[mark] = self.rest.pop(mark)

    def done(self, unit: TopicPartition) -> None:
        (self.shards if unit.topic == OFFSETS else self.rest).pop(unit, None)

    def forget(self, unit: TopicPartition) -> None:
        self.done(unit)
        self.mend.discard(unit)

    @property
    def is_empty(self) -> bool:
        return not self.shards and not self.rest


@dataclass(slots=True)
class AdminRequest:
    """What an operator asked, and what has come of it so far: answered when nothing is open any more."""

    request: RequestId | None
    open: set[TopicPartition] = field(default_factory=set)
    results: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


@dataclass(slots=True)
class ControllerTerm:
    book: ControllerState
    work: ReviewQueue = field(default_factory=ReviewQueue)
    out: list[ControllerEffect] = field(default_factory=list)
    now_ms: int = 0
    silent: bool = False
    """Nobody is told anything yet."""
    renewed: set[TopicPartition] = field(default_factory=set)
    """Units whose leader, of which nobody is sure (`Nodes.unsure`), has been elected anew: once is enough."""
    wishes: list[AdminRequest] = field(default_factory=list)
    """Those that somebody waits for."""

    def wish(self, request: RequestId | None) -> AdminRequest:
        """What an operator asks; who asked hears of it when all of it has come true, or cannot."""
        wish = AdminRequest(request)
        if request is not None:
            self.wishes.append(wish)
        return wish

    def answer(self, request: RequestId, body: ResponseBody) -> None:
        self.out.append(Respond(request, body))

    def warn(self, text: str) -> None:
        self.out.append(WarnOperator(text))

    def remove(self, marker: AdminMarker, name: str = "") -> None:
        self.out.append(RemoveMarker(marker, name))

    def look_at(self, units: Iterable[TopicPartition], cause: str) -> None:
        """These may have to change: they are looked at with the next write."""
        reason = ReviewReason(cause, self.now_ms)
        for unit in units:
            self.work.add(unit, reason)

    def come_true(self, wish: AdminRequest, unit: TopicPartition, code: ErrorCode) -> None:
        """What came of a wish for one unit."""
        wish.open.discard(unit)
        wish.results[unit] = code
        self.maybe_answer(wish)

    def maybe_answer(self, wish: AdminRequest) -> None:
        if not wish.open and wish.request is not None:
            self.answer(wish.request, AdminResult(ErrorCode.NONE, wish.results))
            self.wishes = [other for other in self.wishes if other is not wish]
            wish.request = None
