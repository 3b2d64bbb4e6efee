"""The ports between a consumer and its group protocol, and the callbacks that pass through them.

The consumer knows only these protocols: a membership, an offset store, and a way to join. Each `group.protocol`
implements them: see `group_protocol.py`. Actions of a member machine become `RebalanceEvent`s with deadlines on the
wall clock, and reach the application's callbacks; `on_lost` falls back to `on_revoke`.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from muster.assignors.api import TopicPartition as Pair
from muster.client.calls.transport import now_ms
from muster.client.errors import Refused
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import LeavePolicy
from muster.client.types import GroupMetadata, OffsetAndMetadata, RebalanceEvent, TopicPartition

# Ports
# -----

Wake = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Callback:
    """Partitions that came or went, to be told to the application in order. `token` is None when nobody waits."""

    kind: str
    partitions: tuple[TopicPartition, ...]
    event: RebalanceEvent
    token: int | None


@dataclass(frozen=True, slots=True)
class Interest:
    """What a consumer subscribes to. `regex` is for the group's protocol to resolve; it matches whole names.

    With `black_list` every topic is meant that `regex` does not match.
    """

    topics: tuple[str, ...]
    regex: str = ""
    black_list: bool = False


class GroupMembership(Protocol):
    """One member of one group, on the running loop. It calls `wake` whenever its owner should look."""

    callbacks: deque[Callback]
    failure: Exception | None
    """The end of the membership."""
    trouble: Exception | None
    """To be raised once; the member goes on trying."""

    @property
    def identity(self) -> GroupMetadata:
        """Generation -1 while it is no member."""

    @property
    def watches_topics(self) -> bool:
        """Whether it acts on `TopicsChanged` right now."""

    def send(self, event: ev.CommonEvent) -> None:
        """Tell the member something: it starts, its subscription changed, it closes."""

    def refused(self, error: Refused, generation: int) -> None:
        """A commit made under `generation` was refused."""

    def next_callback(self) -> Callback | None:
        """The next one to tell, in order."""

    def done(self, callback: Callback) -> None:
        """The application has been told."""

    async def left(self) -> None:
        """After `Close`: wait, not for long, until the group knows; then stop everything."""

    async def abort(self) -> None:
        """Stop everything at once; the group finds out by itself."""


class OffsetStore(Protocol):
    """Where a group's positions are kept."""

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: GroupMetadata | None,
        timeout_ms: int | None = None,
    ) -> None:
        """As a member, or with None as a simple consumer. Raises the first refusal."""

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """None where nothing is committed. Waits, with a bound, for transactions that hold a position (KIP-447)."""

    def forget_start(self) -> None:
        """Let the next `committed` ask, whatever was said before about where to begin."""


class GroupJoining(Protocol):
    """How one `group.protocol` brings a consumer into its group."""

    @property
    def store(self) -> OffsetStore | None:
        """None without a group."""

    @property
    def resolves_patterns(self) -> bool:
        """Whether the group's protocol resolves regular expressions; otherwise the consumer asks for topic names."""

    @property
    def reports_positions(self) -> bool:
        """Whether the membership tells its coordinator what is done, so that nothing else need be committed."""

    async def open(self) -> None:
        """Before the first contact with anything; again is harmless."""

    def membership(self, interest: Interest, wake: Wake) -> GroupMembership: ...

    async def close(self) -> None:
        """After the membership has ended."""


def parse_leave_policy(leave: bool | str) -> LeavePolicy:
    """`close(leave=...)`: True as usual (static members stay), False or "remain" stays, "leave" leaves in any case."""
    if isinstance(leave, bool):
        return LeavePolicy.DEFAULT if leave else LeavePolicy.REMAIN
    try:
        return LeavePolicy(leave)
    except ValueError:
        known = ", ".join(repr(way.value) for way in LeavePolicy)
        raise ValueError(f"leave={leave!r} is not known; use True, False, or one of {known}") from None


# Callbacks from a machine's actions
# ----------------------------------

KINDS: dict[type, str] = {act.Revoke: "revoked", act.Lost: "lost", act.Assign: "assigned"}


def build_callback(
    action: act.Revoke | act.Lost | act.Assign, generation: int, protocol: str, owned: set[Pair], patience_ms: int
) -> Callback:
    """`owned` is everything owned once it has been told; `patience_ms` is how long the group waits after an Assign."""
    deadline_ms = now_ms() + patience_ms if isinstance(action, act.Assign) else action.deadline_ms
    event = RebalanceEvent(
        KINDS[type(action)],
        action.cause,
        action.detail,
        action.rebalance_number,
        action.generation if isinstance(action, act.Assign) else generation,
        protocol,
        time.time_ns() // 1_000_000 + deadline_ms - now_ms(),
        tuple(TopicPartition(*tp) for tp in sorted(owned)),
    )
    told = action.added if isinstance(action, act.Assign) else action.partitions
    token = None if isinstance(action, act.Assign) else action.token
    return Callback(event.kind, tuple(TopicPartition(*tp) for tp in told), event, token)


def build_preparation(
    action: act.Prepare,
    generation: int,
    owned: set[Pair],
    patience_ms: int,
    on_ready: Callable[[tuple[TopicPartition, ...]], None],
) -> Callback:
    """What is coming. The deadline is the latest by which the others let go, or are made to."""
    coming = tuple(TopicPartition(*tp) for tp in action.partitions)
    event = RebalanceEvent(
        "prepare",
        action.cause,
        action.detail,
        0,
        generation,
        "cooperative",
        time.time_ns() // 1_000_000 + patience_ms,
        tuple(TopicPartition(*tp) for tp in sorted(owned)),
        coming,
        on_ready=on_ready,
    )
    return Callback("prepare", coming, event, None)


# The application's callbacks
# ---------------------------

OnChange = Callable[..., Any]
"""Any of those in `muster.client.types`; which shape it has is found out when it is called."""


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """`on_lost` falls back to `on_revoke`: whoever does not tell them apart gives up in both cases."""

    on_assign: OnChange | None = None
    on_revoke: OnChange | None = None
    on_lost: OnChange | None = None
    on_prepare: OnChange | None = None

    def call(self, consumer: object, callback: Callback) -> Awaitable[Any] | None:
        """Run the callback; what it returns may have to be awaited. Its errors are the application's."""
        return self._call(consumer, list(callback.partitions), callback)

    def call_for(self, worker: object, partition: TopicPartition, callback: Callback) -> Awaitable[Any] | None:
        """The same for a single partition, as workers want it."""
        if callback.kind == "prepare":
            callback = replace(callback, event=replace(callback.event, coming=(partition,)))
        return self._call(worker, partition, callback)

    def _call(self, owner: object, what: object, callback: Callback) -> Awaitable[Any] | None:
        chosen = self._chosen(callback.kind)
        if chosen is None:
            return None
        returned = chosen(owner, what, callback.event) if wants_event(chosen) else chosen(owner, what)
        return returned if isinstance(returned, Awaitable) else None

    def _chosen(self, kind: str) -> OnChange | None:
        match kind:
            case "assigned":
                return self.on_assign
            case "prepare":
                return self.on_prepare
            case "revoked":
                return self.on_revoke
            case _:
                return self.on_lost or self.on_revoke


def wants_event(function: OnChange) -> bool:
    """Whether it takes a third positional argument. What cannot be inspected gets the two of confluent-kafka.

    >>> wants_event(lambda consumer, partitions, event: None), wants_event(lambda consumer, partitions: None)
    (True, False)
    """
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) >= 3 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
