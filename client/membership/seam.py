"""The seam between a consumer and the way its group works: a membership, an offset store, and who brings them.

`Consuming` knows these protocols alone. Each `group.protocol` brings its own: see `joining.py`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.client.errors import Refused
from muster.client.members import events as ev
from muster.client.members.types import LeavePolicy
from muster.client.types import GroupMetadata, OffsetAndMetadata, RebalanceEvent, TopicPartition

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
        """None where nothing is committed."""


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
