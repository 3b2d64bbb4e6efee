"""A model of Kafka's coordinator of one classic group of static members: what the nodes' group rests on (KB-D5, KB-F7).

Rules as of 4.1: a static member that comes back without its id takes its place over and keeps the generation; one that
does not rejoin in time stays a member until its session ends (only dynamic ones are put out by the rebalance timeout).
Time comes as arguments, answers leave by callbacks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING, FENCED_INSTANCE = 25, 22, 27, 82


class Line(NamedTuple):
    member_id: str
    instance: str
    metadata: bytes


class Joined(NamedTuple):
    code: int
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    members: tuple[Line, ...] = ()
    skip_assignment: bool = False


class Synced(NamedTuple):
    code: int
    assignment: bytes = b""


class State(Enum):
    EMPTY = 0
    PREPARING = 1
    COMPLETING = 2
    STABLE = 3


@dataclass(slots=True)
class Member:
    id: str
    instance: str
    metadata: bytes
    heard_ms: int
    join: Callable[[Joined], None] | None = None
    sync: Callable[[Synced], None] | None = None
    assignment: bytes = b""
    waits: bool = False
    """A parked request: its session does not run."""


class Group:
    def __init__(self, session_ms: int, *, delay_ms: int = 1_000) -> None:
        """delay_ms: group.initial.rebalance.delay.ms. The rebalance timeout is the session's (KB-F7)."""
        self.session_ms = session_ms
        self.delay_ms = delay_ms
        self.state = State.EMPTY
        self.generation = 0
        self.leader = ""
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        self.until_ms = 0
        self._ids = 0

    # Requests.

    def join(
        self, member_id: str, instance: str, metadata: bytes, now_ms: int, answer: Callable[[Joined], None]
    ) -> None:
        self.tick(now_ms)
        if not member_id and instance in self.instances:
            self._come_back(instance, metadata, now_ms, answer)
            return
        if not member_id:
            self._ids += 1
            member = Member(f"{instance}-{self._ids}", instance, metadata, now_ms)
            self.members[member.id], self.instances[instance] = member, member.id
            self._park(member, answer)
            self._prepare(now_ms)
            return
        if (code := self._refusal(member_id, instance)) != 0:
            answer(Joined(code))
            return
        member = self.members[member_id]
        same, member.metadata, member.heard_ms = member.metadata == metadata, metadata, now_ms
        if self.state is State.PREPARING:
            self._park(member, answer)
            self._maybe_complete(now_ms)
        elif (self.state is State.COMPLETING and same) or (
            self.state is State.STABLE and same and member_id != self.leader
        ):
            answer(self._welcome(member))
        else:
            self._park(member, answer)
            self._prepare(now_ms)

    def _come_back(self, instance: str, metadata: bytes, now_ms: int, answer: Callable[[Joined], None]) -> None:
        """KIP-345: another process under the same instance id."""
        old = self.members.pop(self.instances[instance])
        self._refuse(old, FENCED_INSTANCE)
        self._ids += 1
        member = Member(f"{instance}-{self._ids}", instance, metadata, now_ms, assignment=old.assignment)
        self.members[member.id], self.instances[instance] = member, member.id
        led = self.leader == old.id
        if led:
            self.leader = member.id
        if self.state is State.STABLE:
            answer(self._welcome(member)._replace(skip_assignment=led))
        else:
            self._park(member, answer)
            if self.state is State.PREPARING:
                self._maybe_complete(now_ms)
            else:
                self._prepare(now_ms)

    def sync(
        self,
        member_id: str,
        instance: str,
        generation: int,
        assignments: Mapping[str, bytes],
        now_ms: int,
        answer: Callable[[Synced], None],
    ) -> None:
        self.tick(now_ms)
        if (code := self._refusal(member_id, instance, generation)) != 0:
            answer(Synced(code))
            return
        member = self.members[member_id]
        member.heard_ms = now_ms
        if self.state is State.PREPARING:
            answer(Synced(REBALANCING))
        elif self.state is State.STABLE:
            answer(Synced(0, member.assignment))
        else:
            member.sync, member.waits = answer, True
            if member_id == self.leader:
                self._hand_out(assignments, now_ms)

    def heartbeat(self, member_id: str, instance: str, generation: int, now_ms: int) -> int:
        self.tick(now_ms)
        if (code := self._refusal(member_id, instance, generation)) != 0:
            return code
        self.members[member_id].heard_ms = now_ms
        return REBALANCING if self.state is State.PREPARING else 0

    def leave(self, member_id: str, instance: str, now_ms: int) -> int:
        """Without a member id, by instance id alone, whoever has it now goes: so operators do it. With one, only the
        process that has it."""
        self.tick(now_ms)
        if instance not in self.instances:
            return UNKNOWN_MEMBER
        if member_id and self.instances[instance] != member_id:
            return FENCED_INSTANCE
        self._remove(self.members[self.instances[instance]], now_ms)
        return 0

    def _refusal(self, member_id: str, instance: str, generation: int | None = None) -> int:
        if instance in self.instances and self.instances[instance] != member_id:
            return FENCED_INSTANCE
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        return ILLEGAL_GENERATION if generation is not None and generation != self.generation else 0

    # Time.

    def tick(self, now_ms: int) -> None:
        for member in list(self.members.values()):
            if not member.waits and now_ms - member.heard_ms >= self.session_ms:
                self._remove(member, now_ms)
        if self.state is State.PREPARING and now_ms >= self.until_ms:
            self._complete(now_ms)
        if self.state is State.COMPLETING and now_ms >= self.until_ms:
            for member in list(self.members.values()):
                if member.sync is None:
                    self._remove(member, now_ms)

    def _remove(self, member: Member, now_ms: int) -> None:
        if self.members.pop(member.id, None) is None:
            return
        del self.instances[member.instance]
        self._refuse(member, UNKNOWN_MEMBER)
        if self.state is State.PREPARING:
            self._maybe_complete(now_ms)
        elif not self.members:
            self.state, self.generation = State.EMPTY, self.generation + 1
        else:
            self._prepare(now_ms)

    # Rounds.

    def _prepare(self, now_ms: int) -> None:
        """Whoever waits for his share joins again."""
        first = self.state is State.EMPTY
        for member in self.members.values():
            if member.sync is not None:
                answer, member.sync, member.waits = member.sync, None, member.join is not None
                member.heard_ms = now_ms
                answer(Synced(REBALANCING))
        self.state, self.until_ms = State.PREPARING, now_ms + (self.delay_ms if first else self.session_ms)
        if not first:
            self._maybe_complete(now_ms)

    def _maybe_complete(self, now_ms: int) -> None:
        if self.members and all(member.join is not None for member in self.members.values()):
            if self.generation or now_ms >= self.until_ms:
                self._complete(now_ms)
        elif not self.members:
            self.state, self.generation = State.EMPTY, self.generation + 1

    def _complete(self, now_ms: int) -> None:
        there = [member for member in self.members.values() if member.join is not None]
        if not there:
            self.until_ms = now_ms + self.session_ms
            return
        if self.leader not in {member.id for member in there}:
            self.leader = there[0].id
        self.generation += 1
        self.state, self.until_ms = State.COMPLETING, now_ms + self.session_ms
        for member in self.members.values():
            member.assignment = b""
        for member in there:
            answer, member.join, member.waits = member.join, None, False
            member.heard_ms = now_ms
            assert answer is not None
            answer(self._welcome(member))

    def _hand_out(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        self.state = State.STABLE
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
            if member.sync is not None:
                answer, member.sync, member.waits = member.sync, None, False
                member.heard_ms = now_ms
                answer(Synced(0, member.assignment))

    def _welcome(self, member: Member) -> Joined:
        lines: Sequence[Line] = ()
        if member.id == self.leader:
            lines = [Line(each.id, each.instance, each.metadata) for each in self.members.values()]
        return Joined(0, member.id, self.generation, self.leader, tuple(lines))

    def _park(self, member: Member, answer: Callable[[Joined], None]) -> None:
        member.join, member.waits = answer, True

    def _refuse(self, member: Member, code: int) -> None:
        """Callbacks of who is no member any more."""
        join, sync, member.join, member.sync = member.join, member.sync, None, None
        if join is not None:
            join(Joined(code))
        if sync is not None:
            sync(Synced(code))
