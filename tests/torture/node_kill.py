"""Kill -9 of the node during rebalances and under commits, round after round.

Members join, sync, commit and leave as fast as they can, so that every kill lands in the middle of something. After
each restart the node must know at least what it acknowledged: every committed offset, every completed generation, and a
ledger that counts on without a gap.

    python -m tests.torture.node_kill --rounds 100
"""

import argparse
import asyncio
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import errors_pb2
from muster.storage.rpc.v1 import broker_service_pb2
from tests.support import stubs as rpc
from tests.support.node import NodeProcess
from tests.support.stubs import BrokerStub

GROUPS = ("orders", "payments")
TOPIC = "t"
PARTITIONS = 4
NONE = errors_pb2.ERROR_CODE_NONE


@dataclass
class Promises:
    """What the node has acknowledged, and what it may have kept without saying so."""

    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    sent: dict[tuple[str, int], int] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    rebalances: int = 0

    def next_offset(self, key: tuple[str, int]) -> int:
        self.sent[key] = self.sent.get(key, 0) + 1
        return self.sent[key]


@dataclass
class Member:
    """A member as rude as the protocol allows: it rejoins for no reason and leaves without warning."""

    group: str
    number: int
    promises: Promises
    rng: random.Random
    stub: rpc.GroupCoordinatorStub = field(init=False)
    member_id: str = ""
    generation: int = -1

    async def live(self, channel: grpc.aio.Channel) -> None:
        self.stub = rpc.GroupCoordinatorStub(channel)
        while True:
            share = await self.take_part()
            if share is not None:
                await self.commit(share)
            if self.rng.random() < 0.05:
                await self.leave()

    async def take_part(self) -> list[int] | None:
        joined = await self.stub.JoinGroup(self.join_request(), timeout=10)
        if joined.error_code == errors_pb2.ERROR_CODE_MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return None
        if joined.error_code != NONE:
            self.member_id = "" if joined.error_code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID else self.member_id
            return None
        self.member_id, self.generation = joined.member_id, joined.generation_id
        synced = await self.stub.SyncGroup(self.sync_request(joined), timeout=10)
        if synced.error_code != NONE:
            return None
        self.promises.rebalances += joined.leader == self.member_id
        known = self.promises.generations.get(self.group, 0)
        self.promises.generations[self.group] = max(known, self.generation)
        return [p for p in range(PARTITIONS) if synced.assignment == encode_assignment({TOPIC: [p]})] or [self.number]

    def join_request(self) -> pb.JoinGroupRequest:
        blob = encode_subscription(Subscription(version=1, topics=(TOPIC,)))
        return pb.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=500,
            rebalance_timeout_ms=500,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[pb.JoinGroupProtocol(name="range", metadata=blob)],
            client_id=f"rude-{self.number}",
        )

    def sync_request(self, joined: pb.JoinGroupResponse) -> pb.SyncGroupRequest:
        shares = [
            pb.SyncGroupAssignment(member_id=member.member_id, assignment=encode_assignment({TOPIC: [index]}))
            for index, member in enumerate(joined.members)
        ]
        return pb.SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id, assignments=shares
        )

    async def commit(self, share: list[int]) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            offsets = {partition: self.promises.next_offset((self.group, partition)) for partition in share}
            rows = [pb.OffsetCommitPartition(partition_index=p, committed_offset=o) for p, o in offsets.items()]
            request = pb.OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                topics=[pb.OffsetCommitTopic(name=TOPIC, partitions=rows)],
            )
            answer = await self.stub.OffsetCommit(request, timeout=10)
            results = [row for topic in answer.topics for row in topic.partitions]
            if answer.error_code != NONE or any(row.error_code != NONE for row in results):
                return
            self.promises.commits += 1
            for partition, offset in offsets.items():
                key = (self.group, partition)
                self.promises.acknowledged[key] = max(self.promises.acknowledged.get(key, 0), offset)

    async def leave(self) -> None:
        who = pb.MemberIdentity(member_id=self.member_id)
        await self.stub.LeaveGroup(pb.LeaveGroupRequest(group_id=self.group, members=[who]), timeout=10)
        self.member_id = ""


async def create_topic(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = BrokerStub(channel)
        topic = broker_service_pb2.NewTopic(name=TOPIC, num_partitions=PARTITIONS)
        await stub.CreateTopics(broker_service_pb2.CreateTopicsRequest(topics=[topic]), timeout=10)


async def one_round(node: NodeProcess, members: list[Member], rng: random.Random) -> None:
    """Members at work until the node dies under them; then the node must remember."""
    async with grpc.aio.insecure_channel(node.address) as channel:
        tasks = [asyncio.create_task(member.live(channel)) for member in members]
        # How long the members may work is the one thing left to chance: that is where the kill lands.
        await asyncio.wait(tasks, timeout=rng.uniform(0.05, 0.6))
        node.kill()
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(outcome, grpc.aio.AioRpcError | asyncio.CancelledError):
                raise AssertionError(f"a member failed: {outcome!r}")
    node.start()
    await check(node, members[0].promises)


async def check(node: NodeProcess, promises: Promises) -> None:
    async with grpc.aio.insecure_channel(node.address) as channel:
        stub = rpc.GroupCoordinatorStub(channel)
        for group in GROUPS:
            await check_offsets(stub, group, promises)
            await check_generation(stub, group, promises)
            await check_ledger(stub, group, promises)


async def check_offsets(stub: rpc.GroupCoordinatorStub, group: str, promises: Promises) -> None:
    answer = await stub.OffsetFetch(pb.OffsetFetchRequest(group_id=group, all_topics=True), timeout=10)
    stored = {(group, row.partition_index): row.committed_offset for topic in answer.topics for row in topic.partitions}
    for key, offset in promises.acknowledged.items():
        if key[0] == group:
            assert stored.get(key, -1) >= offset, f"{key}: acknowledged {offset}, found {stored.get(key)}"
    for key, offset in stored.items():
        assert offset <= promises.sent.get(key, 0), f"{key}: found {offset}, which nobody sent"


async def check_generation(stub: rpc.GroupCoordinatorStub, group: str, promises: Promises) -> None:
    answer = await stub.DescribeGroups(pb.DescribeGroupsRequest(groups=[group]), timeout=10)
    promised = promises.generations.get(group, 0)
    found = answer.groups[0].generation_id
    assert found >= promised, f"group {group}: generation {promised} was announced, {found} is known"


async def check_ledger(stub: rpc.GroupCoordinatorStub, group: str, promises: Promises) -> None:
    answer = await stub.ExplainGroup(pb.ExplainGroupRequest(group_id=group), timeout=10)
    numbers = [entry.number for entry in answer.rebalances]
    if not numbers:
        return
    assert numbers == list(range(numbers[0], numbers[-1] - 1, -1)), f"group {group}: the ledger has gaps: {numbers}"
    assert numbers[0] >= promises.ledger.get(group, 0), f"group {group}: ledger entries are gone"
    promises.ledger[group] = numbers[0]


async def torture(rounds: int, seed: int, data: Path) -> Promises:
    rng = random.Random(seed)
    promises = Promises()
    # They outlive the node and come back with the ids they had, as real members do.
    members = [Member(group, n, promises, random.Random(rng.random())) for group in GROUPS for n in range(3)]
    node = NodeProcess(data)
    node.start()
    try:
        await create_topic(node.address)
        for _ in range(rounds):
            await one_round(node, members, rng)
    finally:
        node.stop()
    return promises


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a node with -9, again and again.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        promises = asyncio.run(torture(options.rounds, options.seed, Path(folder) / "data"))
    print(
        f"{options.rounds} rounds in {time.monotonic() - started:.0f} s: {promises.commits} acknowledged commits and "
        f"{promises.rebalances} rebalances, all there after every kill; ledger up to {promises.ledger}"
    )


if __name__ == "__main__":
    main()
