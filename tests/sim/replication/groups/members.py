"""Members of groups in a simulated cluster: they follow coordinators, keep what they have, and commit (CL-K3, CL-K4).

Where their sessions are longer than any run (`Weather.session_ms`), no member may ever hear that it is not known, and
once a group is settled, nothing may change in it. Where they are shorter, members expire, and the group settles again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from muster.coordinator.core.model.events import (
    ConsumerHeartbeat,
    Heartbeat,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from muster.coordinator.core.model.types import CommittedOffset, Protocol
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import OFFSETS, TopicPartition
from muster.coordinator.runtime.shards import partition_for
from tests.sim.replication.clients import Asker
from tests.sim.replication.groups.coordinator import LONG_MS, SHARDS, TOPICS, GroupAsk
from tests.sim.replication.network import Network
from tests.sim.replication.node import SimNode
from tests.sim.world import World

BEAT_MS = 400
COMMIT_MS = 900
RETRY_MS = 100
PATIENCE_MS = 2_500
JOINING_MS = 6_000
"""How long an answer to a join is waited for: shorter than the quiet in the end, for a request may be lost without a
word."""
ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The coordinator is to be looked for, or asked again."""
UNDISTURBED = {ErrorCode.NONE, *ELSEWHERE}
WORK, WORK_ID = "work", TOPICS.ids["work"]
ALL_WORK = frozenset(range(TOPICS.partitions[WORK]))

Place = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(slots=True)
class MemberHistory:
    """What members were promised, and hold. sent, acked: the largest offset of a place that was sent, and that was
    acknowledged or shown. settled: groups of which all members have been heard in one generation with all partitions;
    with what each has since."""

    session_ms: int = LONG_MS
    sent: dict[Place, int] = field(default_factory=dict)
    acked: dict[Place, int] = field(default_factory=dict)
    members: dict[str, list["Member"]] = field(default_factory=dict)
    settled: dict[str, dict[str, tuple[int, frozenset[int]]]] = field(default_factory=dict)

    @property
    def lasting(self) -> bool:
        """Whether no member may ever be missed."""
        return self.session_ms == LONG_MS

    def look(self, group: str) -> None:
        """Whether the group has settled by now."""
        members = self.members[group]
        if group in self.settled or len({each.generation for each in members}) != 1:
            return
        held = [partition for each in members for partition in each.owned]
        if members[0].generation > 0 and sorted(held) == sorted(ALL_WORK) and all(each.stable for each in members):
            self.settled[group] = {each.name: (each.generation, each.owned) for each in members}


class Member(Asker):
    """generation: or member epoch. stable: it has nothing left to do but to beat."""

    kind: ClassVar[str]

    def __init__(
        self, world: World, network: Network, nodes: list[SimNode], group: str, number: int, history: MemberHistory
    ) -> None:
        super().__init__(world, network, nodes, f"{group}.{number}")
        self.group = group
        self.history = history
        self.generation = 0
        self.owned: frozenset[int] = frozenset()
        self.stable = False
        self.stopped = False
        history.members.setdefault(group, []).append(self)

    def start(self) -> None:
        self.world.after(self.world.between(2_000, 4_000), self.beat)
        self.world.after(self.world.between(4_000, 6_000), self.commit)

    def beat(self) -> None:
        raise NotImplementedError

    def coordinator(self) -> str | None:
        """FindCoordinator: as some node that answers has it in its image."""
        found = self.leader_of(TopicPartition(OFFSETS, partition_for(self.group, SHARDS)))
        return None if found is None else found[0]

    def ask(self, request: Any, then: Callable[[Any], None], by: str, wait_ms: int = PATIENCE_MS) -> None:
        """`then` hears the answer; None where there was none, or it came from somebody who is no coordinator."""
        if self.stopped:
            return
        node = self.coordinator()
        if node is None:
            self.world.after(RETRY_MS, lambda: then(None))
            return

        def told(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                self.world.census["group calls in vain"] += 1
                then(None)
                return
            self.heard(request, outcome)
            then(None if outcome.code in ELSEWHERE else outcome)

        self.network.ask(self.name, node, GroupAsk(request), told, patience_ms=wait_ms, by=f"{self.name}{by}")

    def heard(self, request: Any, reply: Any) -> None:
        """CL-S11: members are undisturbed."""
        self.world.census[f"{self.kind} {reply.code.name}"] += 1
        if not self.history.lasting:
            if reply.code not in UNDISTURBED:
                self.history.settled.pop(self.group, None)
        elif self.group in self.history.settled and reply.code not in UNDISTURBED:
            self.world.violated(
                "Undisturbed", f"{self.name} hears {reply.code.name} to {type(request).__name__}: {reply}"
            )

    def has(self, generation: int, owned: frozenset[int]) -> None:
        """CL-S11: and what a settled group has, it keeps. CL-S9, CL-S11: nobody owns what another does."""
        if not self.history.lasting:
            self._has_now(generation, owned)
            return
        before = self.history.settled.get(self.group)
        if before is not None and before[self.name] != (generation, owned):
            self.world.violated(
                "Undisturbed",
                f"{self.name} has {sorted(owned)} in {generation}; it was settled with {before[self.name]}",
            )
        if generation < self.generation:
            self.world.violated("EpochsRise", f"{self.name} was in {self.generation}, and is in {generation}")
        self.generation, self.owned = generation, owned
        for each in self.history.members[self.group]:
            if each is not self and (both := each.owned & owned):
                self.world.violated("OneOwner", f"{sorted(both)} of {self.group}: {self.name} and {each.name}")
        self.history.look(self.group)

    def _has_now(self, generation: int, owned: frozenset[int]) -> None:
        """Where members may expire: an expired one holds what it had until it hears so."""
        if (generation, owned) != (self.generation, self.owned):
            self.history.settled.pop(self.group, None)
        self.generation, self.owned = generation, owned
        self.history.look(self.group)

    # Offsets.

    def commit(self) -> None:
        if not self.owned or not self.stable:
            self.world.after(COMMIT_MS, self.commit)
            return
        history, offsets = self.history, {}
        for partition in sorted(self.owned):
            place = self.group, WORK, partition
            history.sent[place] = history.sent.get(place, 0) + self.world.between(1, 5)
            offsets[WORK, partition] = CommittedOffset(history.sent[place])

        def told(reply: Any) -> None:
            if reply is not None and reply.code is ErrorCode.NONE:
                self.world.census["commits acked"] += 1
                for (topic, partition), position in offsets.items():
                    place = self.group, topic, partition
                    code = reply.partitions.get((topic, partition), ErrorCode.NONE)
                    if code is ErrorCode.NONE:
                        history.acked[place] = max(history.acked.get(place, 0), position.offset)
            self.world.after(self.world.between(50, COMMIT_MS), self.commit)

        self.ask(self.committing(offsets), told, by="/commit")

    def committing(self, offsets: dict[tuple[str, int], CommittedOffset]) -> OffsetCommit:
        return OffsetCommit(0, self.group, self.name, None, self.generation, offsets)


class ConsumerMember(Member):
    """KIP-848: it says everything each time."""

    kind = "consumer"

    def beat(self) -> None:
        request = ConsumerHeartbeat(
            0,
            self.group,
            self.name,
            self.generation,
            rebalance_timeout_ms=LONG_MS,
            topic_names=(WORK,),
            owned={WORK_ID: self.owned} if self.owned else {},
        )
        self.ask(request, self._told, by="/beat")

    def _told(self, reply: Any) -> None:
        wait_ms = RETRY_MS
        if reply is not None and reply.code is ErrorCode.NONE:
            owned = self.owned if reply.assignment is None else frozenset(reply.assignment.get(WORK_ID, ()))
            self.stable = (reply.member_epoch, owned) == (self.generation, self.owned)
            wait_ms = BEAT_MS if self.stable else RETRY_MS
            self.has(reply.member_epoch, owned)
        elif reply is not None:
            self.world.trace(f"{self.name} begins anew: {reply.code.name}")
            self.generation, self.owned, self.stable = 0, frozenset(), False
        self.world.after(self.world.between(wait_ms // 2, wait_ms), self.beat)


class ClassicMember(Member):
    """JoinGroup and SyncGroup, eager, with an instance id; the leader deals partitions out in turn."""

    kind = "classic"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.id = ""
        self._joined = False

    def beat(self) -> None:
        if not self._joined:
            self._join()
            return
        request = Heartbeat(0, self.group, self.id, self.name, self.generation)
        self.ask(request, self._beaten, by="/beat")

    def _beaten(self, reply: Any) -> None:
        wait_ms = RETRY_MS
        if reply is not None and reply.code is ErrorCode.NONE:
            self.stable = True
            self.history.look(self.group)
            wait_ms = BEAT_MS
        elif reply is not None:
            self._again(reply.code)
        self.world.after(self.world.between(wait_ms // 2, wait_ms), self.beat)

    def _again(self, code: ErrorCode) -> None:
        self.stable = self._joined = False
        self.owned = frozenset()
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.id = ""

    def _join(self) -> None:
        request = JoinGroup(
            0,
            self.group,
            self.id,
            self.name,
            self.name,
            "host",
            self.history.session_ms,
            LONG_MS,
            "consumer",
            (Protocol("range", b""),),
            f"{self.name}-{self.world.between(0, 10**9)}",
        )
        self.ask(request, self._join_answered, by="/beat", wait_ms=JOINING_MS)

    def _join_answered(self, reply: Any) -> None:
        if reply is None or reply.code is not ErrorCode.NONE:
            self.id = reply.member_id if reply is not None and reply.code is ErrorCode.MEMBER_ID_REQUIRED else ""
            self.world.after(RETRY_MS, self.beat)
            return
        self.id = reply.member_id
        names = sorted(each.member_id for each in reply.members)
        dealt = {
            name: bytes(number for number in sorted(ALL_WORK) if names[number % len(names)] == name) for name in names
        }
        request = SyncGroup(
            0, self.group, self.id, self.name, reply.generation, "consumer", "range", tuple(dealt.items())
        )
        generation = reply.generation

        def synced(answer: Any) -> None:
            if answer is not None and answer.code is ErrorCode.NONE:
                self._joined = True
                self.has(generation, frozenset(answer.assignment))
            elif answer is not None:
                self._again(answer.code)
            self.world.after(RETRY_MS, self.beat)

        self.ask(request, synced, by="/beat", wait_ms=JOINING_MS)

    def committing(self, offsets: dict[tuple[str, int], CommittedOffset]) -> OffsetCommit:
        return OffsetCommit(0, self.group, self.id, self.name, self.generation, offsets)


class Auditor(Asker):
    """Asks for committed positions again and again: what was acknowledged, or shown, is there ever after (CL-S10)."""

    def __init__(
        self, world: World, network: Network, nodes: list[SimNode], group: str, history: MemberHistory
    ) -> None:
        super().__init__(world, network, nodes, f"{group}.auditor")
        self.group = group
        self.history = history

    def start(self) -> None:
        self.world.after(self.world.between(5_000, 6_000), self._fetch)

    def _fetch(self) -> None:
        found = self.leader_of(TopicPartition(OFFSETS, partition_for(self.group, SHARDS)))
        if found is None:
            self.world.after(300, self._fetch)
            return
        history, floor = self.history, dict(self.history.acked)

        def told(outcome: Any) -> None:
            if not isinstance(outcome, Exception) and outcome.code is ErrorCode.NONE:
                self.world.census["positions audited"] += 1
                for partition in ALL_WORK:
                    place = self.group, WORK, partition
                    stored = outcome.offsets.get((WORK, partition))
                    offset = 0 if stored is None else stored.offset
                    if offset < floor.get(place, 0):
                        self.world.violated(
                            "OffsetsStay", f"{place}: {floor[place]} was acknowledged or shown, {offset} is committed"
                        )
                    if offset > history.sent.get(place, 0):
                        self.world.violated("OffsetsStay", f"{place}: {offset} is committed, nobody sent it")
                    history.acked[place] = max(history.acked.get(place, 0), offset)
            self.world.after(self.world.between(200, 700), self._fetch)

        request = OffsetFetch(0, self.group, tuple((WORK, partition) for partition in sorted(ALL_WORK)))
        self.network.ask(self.name, found[0], GroupAsk(request), told, patience_ms=PATIENCE_MS, by=self.name)
