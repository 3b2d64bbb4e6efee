"""Groups on three nodes over loopback and real logs: nobody hears what one node's end could undo, and members stay."""

import asyncio
from pathlib import Path
from typing import TypeVar

import pytest

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.types import CommittedOffset, Protocol, Takeover
from muster.coordinator.edge.cluster_view import monotonic_ms
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.shards.lease_release import LeaseQuestions
from tests.support.shard_sides import SESSION_MS, SHARD, ShardNode, ShardSides, play

pytestmark = pytest.mark.integration

NONE = ErrorCode.NONE
AWAY = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
Wanted = TypeVar("Wanted", bound=effects.Reply)


async def ask(node: ShardNode, event: events.Request, wanted: type[Wanted]) -> Wanted:
    return await node.driver.ask_shard(0, event, wanted)


def commit(node: ShardNode, offset: int, member: str = "", generation: int = -1) -> events.OffsetCommit:
    return events.OffsetCommit(
        node.driver.next_id(), "g", member, None, generation, {("t", 0): CommittedOffset(offset)}
    )


async def committed(node: ShardNode, offset: int) -> ErrorCode:
    return (await ask(node, commit(node, offset), effects.OffsetCommitReply)).code


async def fetched(node: ShardNode) -> tuple[ErrorCode, int | None]:
    reply = await ask(node, events.OffsetFetch(node.driver.next_id(), "g", None), effects.OffsetFetchReply)
    stored = dict(reply.offsets or {}).get(("t", 0))
    return reply.code, None if stored is None else stored.offset


async def until_fetched(sides: ShardSides, node: ShardNode) -> tuple[ErrorCode, int | None]:
    while True:
        code, offset = await fetched(node)
        if code not in AWAY:
            return code, offset
        sides.happened.clear()
        await sides.happened.wait()


def test_a_commit_is_answered_once_it_is_on_two_and_survives_its_coordinator(tmp_path: Path) -> None:
    """CL-G1 to CL-G3."""

    async def story(sides: ShardSides) -> None:
        old = await sides.coordinator()
        assert (await until_fetched(sides, old)) == (NONE, None)
        for offset in range(10):
            assert await committed(old, offset) is NONE
            ends = sorted(node.log(SHARD).durable_offset for node in sides)
            assert ends[-2] == old.node.log(SHARD).end_offset, "flushed on a second node"
        await sides.kill(old.node)
        new = await sides.coordinator()
        assert new is not old
        assert (await until_fetched(sides, new)) == (NONE, 9)
        assert await committed(new, 10) is NONE

    play(tmp_path, story)


def test_g8_whoever_follows_is_ready_to_take_over(tmp_path: Path) -> None:
    """What was committed is in memory already; the rest is read when it is needed."""

    async def story(sides: ShardSides) -> None:
        old = await sides.coordinator()
        for offset in range(10):
            assert await until_committed(sides, old, offset) is NONE
        ready = {id(await kept_ready(sides, node)) for node in sides.of.values() if node is not old}
        assert len(ready) == 2
        await sides.kill(old.node)
        new = await sides.coordinator()
        assert (await until_fetched(sides, new)) == (NONE, 9)
        assert id(new.engine.core(0)) in ready
        assert await committed(new, 10) is NONE

    play(tmp_path, story)


async def until_committed(sides: ShardSides, node: ShardNode, offset: int) -> ErrorCode:
    while (code := await committed(node, offset)) in AWAY:
        sides.happened.clear()
        await sides.happened.wait()
    return code


async def kept_ready(sides: ShardSides, node: ShardNode) -> object:
    """The core of the shard, with all that was written: told by its leader that it is committed."""
    log = node.node.log(SHARD)
    while log.high_watermark < log.end_offset:
        sides.happened.clear()
        await sides.happened.wait()
    while node.warming.take_some():
        pass
    return node.warming._warm[0].core


class Member:
    """Of a classic group, as its requests say it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = ""
        self.generation = -1
        self.leads: tuple[str, ...] = ()

    async def join(self, node: ShardNode) -> None:
        offered = (Protocol("range", encode_subscription(Subscription(1, ("t",)))),)
        reply = await ask(
            node,
            events.JoinGroup(
                *(node.driver.next_id(), "g", self.id, None, self.name, "/h", 30_000, 30_000, "consumer", offered),
                self.name,
            ),
            effects.JoinReply,
        )
        if reply.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = reply.member_id
            await self.join(node)
            return
        assert reply.code is NONE
        self.id, self.generation = reply.member_id, reply.generation
        self.leads = tuple(member.member_id for member in reply.members)

    async def sync(self, node: ShardNode) -> bytes:
        plan = tuple((member, member.encode()) for member in self.leads)
        event = events.SyncGroup(node.driver.next_id(), "g", self.id, None, self.generation, None, None, plan)
        reply = await ask(node, event, effects.SyncReply)
        assert reply.code is NONE
        return reply.assignment

    async def beat(self, node: ShardNode) -> ErrorCode:
        event = events.Heartbeat(node.driver.next_id(), "g", self.id, None, self.generation)
        return (await ask(node, event, effects.HeartbeatReply)).code

    async def commit(self, node: ShardNode, offset: int) -> ErrorCode:
        return (await ask(node, commit(node, offset, self.id, self.generation), effects.OffsetCommitReply)).code


async def stable(node: ShardNode) -> list[Member]:
    """Two members of one generation, each with its part."""
    members = [Member("a"), Member("b")]
    await members[0].join(node)
    await members[0].sync(node)
    joining = asyncio.create_task(members[1].join(node))
    while await members[0].beat(node) is NONE:
        pass
    await members[0].join(node)
    await joining
    parts = await asyncio.gather(*(member.sync(node) for member in members))
    assert parts == [member.id.encode() for member in members]
    return members


async def until_beaten(sides: ShardSides, node: ShardNode, member: Member) -> ErrorCode:
    while (code := await member.beat(node)) in AWAY:
        sides.happened.clear()
        await sides.happened.wait()
    return code


async def until_recorded(sides: ShardSides, node: ShardNode) -> tuple[Takeover, ...]:
    """CL-G9: what `explain` tells of the takeover, once it is there."""
    while True:
        event = events.ExplainGroup(node.driver.next_id(), "g")
        reply = await ask(node, event, effects.ExplainReply)
        if reply.takeovers:
            return reply.takeovers
        sides.happened.clear()
        await sides.happened.wait()


def test_members_are_undisturbed_by_the_end_of_their_coordinator(tmp_path: Path) -> None:
    """CL-G1, CL-G5b, CL-G7: ids, generation and positions are as they were, and nobody joins again."""

    async def story(sides: ShardSides) -> None:
        old = await sides.coordinator()
        await until_fetched(sides, old)
        members = await stable(old)
        for member in members:
            assert await member.beat(old) is NONE
            assert await member.commit(old, 7) is NONE
        await sides.kill(old.node)
        new = await sides.coordinator()
        for member in members:
            assert await until_beaten(sides, new, member) is NONE
            assert await member.commit(new, 8) is NONE
        reply = await ask(new, events.DescribeGroup(new.driver.next_id(), "g"), effects.DescribeReply)
        assert reply.generation == members[0].generation
        ((moved, *_),) = [await until_recorded(sides, new)]
        assert (moved.moved_from, moved.moved_to, moved.cause) == (old.node.id, new.node.id, f"node {old.node.id} died")
        assert (moved.groups, moved.members) == (1, 2)
        assert moved.last_heard_ms <= moved.elected_ms <= moved.serving_ms
        assert {member.member_id for member in reply.members} == {member.id for member in members}

    play(tmp_path, story)


def test_a_member_of_the_consumer_protocol_keeps_its_epoch_and_its_partitions(tmp_path: Path) -> None:
    """CL-G7, KIP-848."""

    async def story(sides: ShardSides) -> None:
        old = await sides.coordinator()
        await until_fetched(sides, old)
        joined = await ask(
            old,
            events.ConsumerHeartbeat(old.driver.next_id(), "g", "m", 0, None, None, 30_000, ("t",), owned={}),
            effects.ConsumerHeartbeatReply,
        )
        assert joined.code is NONE
        share = joined.assignment
        assert share
        await sides.kill(old.node)
        new = await sides.coordinator()
        while True:
            event = events.ConsumerHeartbeat(new.driver.next_id(), "g", "m", joined.member_epoch, owned=share)
            reply = await ask(new, event, effects.ConsumerHeartbeatReply)
            if reply.code not in AWAY:
                break
            sides.happened.clear()
            await sides.happened.wait()
        assert (reply.code, reply.member_epoch) == (NONE, joined.member_epoch)
        assert reply.assignment in (None, share)

    play(tmp_path, story)


def test_with_too_few_in_sync_nothing_is_promised_and_members_stay(tmp_path: Path) -> None:
    """CL-G3, CL-G4, CL-G6: 15 without a word into the log; when one is back, all is as it was."""

    async def story(sides: ShardSides) -> None:
        node = await sides.coordinator()
        await until_fetched(sides, node)
        members = await stable(node)
        others = [each for each in sides if each is not node.node]
        for other in others:
            await sides.kill(other)
        await sides.until(lambda: node.node.side.replicas.leaders[SHARD].isr == (node.node.id,))
        end = node.node.log(SHARD).end_offset
        assert await committed(node, 3) in AWAY
        assert await members[0].beat(node) in AWAY
        assert node.node.log(SHARD).end_offset == end
        await sides.start(others[0])
        assert await until_beaten(sides, node, members[0]) is NONE
        assert await members[0].commit(node, 9) is NONE
        for member in members:
            assert await member.beat(node) is NONE

    play(tmp_path, story, commit_timeout_ms=300)


def test_a_leader_that_nobody_told_lets_go_when_its_successor_asks(tmp_path: Path) -> None:
    """CL-G5a, CL-L9: its session is over and it does not hear of it; the new one need not wait for a session."""

    async def story(sides: ShardSides) -> None:
        old = await sides.coordinator()
        await until_fetched(sides, old)
        members = await stable(old)
        parked = asyncio.create_task(Member("c").join(old))
        lost = list[int]()
        old.coordinating.on_lost(lost.append)
        await asyncio.sleep(0)
        began = monotonic_ms()
        sides.standing.lost(old.node.id)
        await sides.until(lambda: any(node.leads(SHARD) for node in sides.up if node is not old.node))
        new = next(sides.of[node.id] for node in sides.up if node is not old.node and node.leads(SHARD))
        for member in members:
            assert await until_beaten(sides, new, member) in (NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        assert monotonic_ms() - began < SESSION_MS
        assert not old.node.leads(SHARD)
        assert SHARD.partition in lost, "whoever is connected for its groups is sent away"
        assert await members[0].beat(old) is ErrorCode.NOT_COORDINATOR
        with pytest.raises(AssertionError):
            await parked

    play(tmp_path, story)


def test_a_coordinator_that_stood_still_says_nothing_before_its_followers_spoke(tmp_path: Path) -> None:
    """CL-G4: it may have been replaced meanwhile, for all it knows. For longer than a lease, and not so long that its
    followers seem to lag behind."""

    async def story(sides: ShardSides) -> None:
        node = await sides.coordinator()
        await until_fetched(sides, node)
        members = await stable(node)
        end = node.node.log(SHARD).end_offset
        node.stands_still(1_500)
        assert not node.coordinating.may_answer(0)
        assert not node.driver.beat(0, "g", members[0].id, members[0].generation)
        for member in members:
            assert await until_beaten(sides, node, member) is NONE
        assert node.node.log(SHARD).end_offset == end, "nobody left, nothing changed"

    play(tmp_path, story, session_ms=1_000)


def test_two_never_answer_for_one_shard_though_they_cannot_hear_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-G4, CL-G5: the old one is cut off from the controller and from its successor, which waits for a session."""
    monkeypatch.setattr(LeaseQuestions, "soon", lambda self: None)
    session_ms = 1_000

    async def story(sides: ShardSides) -> None:
        old = await sides.coordinator()
        await until_fetched(sides, old)
        others = [node for node in sides.up if node is not old.node]
        sides.standing.lost(old.node.id)
        await sides.until(lambda: any(node.leads(SHARD) for node in others))
        new = next(sides.of[node.id] for node in others if node.leads(SHARD))
        began = monotonic_ms()
        answered: list[tuple[bool, bool]] = []

        def looked() -> bool:
            answered.append((old.coordinating.may_answer(0), new.coordinating.may_answer(0)))
            return answered[-1][1]

        await sides.until(looked)
        assert (True, True) not in answered
        assert (True, False) in answered, "the old one has its lease for a while"
        assert answered[-1] == (False, True)
        assert monotonic_ms() - began > session_ms / 2
        assert (await until_fetched(sides, new))[0] is NONE

    play(tmp_path, story, session_ms=session_ms)
