"""The base of every member whose group has a coordinator, whichever protocol it speaks.

It holds the member's state, its partitions, the outstanding requests and the next wake-up time, and it ends the
membership. Requests to the coordinator, and the meaning of its answers, belong to each protocol's own module.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, Generic, TypeAlias, TypeVar

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members.coordinator_link import CoordinatorLink, OutstandingRequests
from muster.client.members.member_types import (
    NO_GENERATION,
    LeavePolicy,
    MemberSettings,
    MembershipState,
    Partitions,
    RequestKind,
)
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

POLL_TIMEOUT = "consumer poll timeout has expired."
LEAVE_REASON = "the consumer is being closed"

EventT = TypeVar("EventT")
ActionT = TypeVar("ActionT")
Common: TypeAlias = act.FindCoordinator | act.Abandon | act.Revoke | act.Lost | act.Fail | act.Closed | act.WakeMemberAt


class CoordinatedMember(ABC, Generic[EventT, ActionT]):
    """Owned partitions, generation and member id are its to say."""

    moves: ClassVar[Mapping[MembershipState, frozenset[MembershipState]]]

    def __init__(self, settings: MemberSettings, member_id: str = "") -> None:
        self.settings = settings
        self.state = MembershipState.IDLE
        self.member_id = member_id
        self.generation = NO_GENERATION
        self.rebalance_number = 0
        self.owned: set[TopicPartition] = set()
        self._cause = Cause.UNSPECIFIED
        self._cause_detail = ""
        self._leaving = LeavePolicy.DEFAULT
        self._link = CoordinatorLink(settings)
        self._requests = OutstandingRequests()
        self._now_ms = 0
        self._out: list[ActionT | Common] = []

    @property
    def awaited_release(self) -> int | None:
        """The token of the callbacks this member waits for."""
        return self._requests.token(RequestKind.RELEASE)

    def step(self, event: EventT, now_ms: int) -> list[ActionT | Common]:
        """Take in one event; `now_ms` never goes back."""
        self._now_ms = now_ms
        self._out = []
        if self.state is not MembershipState.CLOSED:
            self._handle_event(event)
            if due := [wish for wish in self._wishes() if wish is not None]:
                self._out.append(act.WakeMemberAt(min(due)))
        return self._out

    @abstractmethod
    def _handle_event(self, event: EventT) -> None: ...

    @abstractmethod
    def _wishes(self) -> Iterable[int | None]:
        """When to be woken, at the latest; the earliest counts."""

    def _become(self, state: MembershipState) -> None:
        assert state is self.state or state in self.moves[self.state], f"{self.state} -> {state}"
        self.state = state

    # Requests

    def _find(self) -> None:
        if RequestKind.FIND not in self._requests:
            self._out.append(act.FindCoordinator(self._requests.begin_request(RequestKind.FIND)))

    def _abandon(self, *kinds: RequestKind) -> None:
        for kind in kinds:
            token = self._requests.drop(kind)
            if token is not None and kind is not RequestKind.RELEASE:
                self._out.append(act.Abandon(token))

    # The application polls again

    def _polled(self) -> None:
        if self.state is not MembershipState.EXPIRED:
            return
        if RequestKind.RELEASE in self._requests:
            self._become(MembershipState.RELEASING)
        else:
            self._join()

    @abstractmethod
    def _join(self) -> None: ...

    # Callbacks

    def _release_partitions(
        self, kind: type[act.Revoke] | type[act.Lost], partitions: Collection[TopicPartition]
    ) -> None:
        """From here on the partitions are not this member's any more, whatever the callback does."""
        gone: Partitions = tuple(sorted(partitions))
        self.owned -= set(gone)
        token = self._requests.begin_request(RequestKind.RELEASE)
        deadline_ms = self._now_ms + self._patience_ms(kind)
        self._out.append(kind(token, gone, self._cause, self._cause_detail, self.rebalance_number, deadline_ms))

    def _patience_ms(self, _kind: type[act.Revoke] | type[act.Lost]) -> int:
        """How long the coordinator waits for the application."""
        return self.settings.rebalance_timeout_ms

    # The end

    def _close(self, leaving: LeavePolicy) -> None:
        if self.state is MembershipState.CLOSING:
            return
        if self.state in {MembershipState.IDLE, MembershipState.FAILED}:
            self._finish()
            return
        kind = act.Lost if self._has_lost_all() else act.Revoke
        self._stop_joining()
        self._leaving, self._link.retry_at_ms = leaving, None
        self._cause, self._cause_detail = Cause.MEMBER_LEFT, LEAVE_REASON
        self._become(MembershipState.CLOSING)
        if self.owned:
            self._release_partitions(kind, self.owned)
        elif RequestKind.RELEASE not in self._requests:
            self._leave_and_close()

    def _has_lost_all(self) -> bool:
        """Whether what it still works on may be somebody else's."""
        return self.generation == NO_GENERATION

    @abstractmethod
    def _stop_joining(self) -> None:
        """Nothing of a join, or of a plan, under way counts any more."""

    @abstractmethod
    def _leave_and_close(self) -> None: ...

    def _finish(self) -> None:
        self._abandon(*RequestKind)
        self.generation = NO_GENERATION
        self._become(MembershipState.CLOSED)
        self._out.append(act.Closed())

    def _fail(self, code: ErrorCode, message: str) -> None:
        """Refused for good: nothing is owned any more, and joining again cannot help."""
        self._forget_membership()
        if self.state is MembershipState.CLOSING:
            self._leave_and_close()
            return
        self._cause, self._cause_detail = Cause.MEMBER_FENCED, message or code.meaning
        if self.owned:
            self._release_partitions(act.Lost, self.owned)
        self._become(MembershipState.FAILED)
        self._out.append(act.Fail(code, message or code.meaning))

    @abstractmethod
    def _forget_membership(self) -> None:
        """Nothing is under way or due, and there is no generation to speak in."""
