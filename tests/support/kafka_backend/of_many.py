"""A node of several over one upstream: its shards are dealt by the nodes' group, all in the loop of a test.

Run as `python -m tests.support.kafka_backend.of_many HOST:PORT CLUSTER SHARDS NODE SESSION_MS COPIES` it is a process:
it takes lines `NUMBER GROUP OFFSET` (a commit; -1 reads), answers each by `answer NUMBER OFFSET CODE`, and tells how
many shards it `serves` whenever that changes. SIGTERM drains it; at SIGUSR1 it tells where it `stands`, for people.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from muster.coordinator.kafka_backend.nodes_group import NodesGroup, NodesGroupSettings
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipSettings
from tests.support.kafka_backend.over_kafka import OverKafka

CONFLICT = 5


class OfMany(OverKafka):
    """`heartbeat_ms`: how soon it hears that the group shares anew."""

    def __init__(self, *args: Any, heartbeat_ms: int = 20, **given: Any) -> None:
        super().__init__(*args, **given)
        self._heartbeat_ms = heartbeat_ms
        self.troubles: list[str] = []

    def _begin(self, settings: OwnershipSettings) -> None:
        self.nodes = NodesGroup(
            self.upstream,
            self.owning,
            settings,
            NodesGroupSettings(
                cluster=self._cluster,
                shards=self.shards,
                heartbeat_ms=self._heartbeat_ms,
                addresses={"grpc": f"host-{self.id}:9290"},
            ),
            on_assigned=lambda assignment: self._changed.set(),
            on_trouble=self._on_trouble,
            on_bug=self.bugs.append,
        )
        self.nodes.start()

    def stands(self) -> str:
        stages = {shard: stage.name for shard, stage in self.owning.shards.stages().items()}
        lease = self.owning.shards.has_lease(self.clock.now_ms())
        dealt = {node.node: node.shards for node in self.nodes.assignment.nodes.values()}
        return f"{self.nodes._member.state.name} lease={lease} {stages} dealt={dealt} {self.troubles} {self.lost}"

    async def __aexit__(self, *_: object) -> None:
        await self.nodes.stop()
        await super().__aexit__()

    def _on_fenced(self, shard: int) -> None:
        self.fenced.add(shard)
        self._changed.set()

    def _on_trouble(self, sentence: str) -> None:
        self.troubles.append(sentence)
        self._changed.set()


async def serve(address: str, cluster: str, shards: int, node: int, session_ms: int, copies: int) -> int:
    reader, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    told, ends, asked = -1, asyncio.Event(), set[asyncio.Task[None]]()
    loop.add_signal_handler(signal.SIGTERM, ends.set)
    given: dict[str, Any] = {"instance": f"{node}/{os.getpid()}", "session_ms": session_ms, "copies": copies}
    async with OfMany(address, cluster, shards, node=node, heartbeat_ms=300, **given) as one:

        async def answer(number: str, group: str, offset: str) -> None:
            if int(offset) >= 0:
                code = await one.commit(group, int(offset))
            else:
                reply = await one.position(group)
                code, found = reply.code, reply.offsets.get(("orders", 0))
                offset = "-1" if found is None else str(found.offset)
            print("answer", number, offset, code.name, flush=True)

        async def listen() -> None:
            while line := await reader.readline():
                task = asyncio.ensure_future(answer(*line.decode().split()))
                asked.add(task)
                task.add_done_callback(asked.discard)

        loop.add_signal_handler(signal.SIGUSR1, lambda: print("stands", one.stands(), flush=True))
        listening = asyncio.ensure_future(listen())
        while not ends.is_set() and not one.stopped:
            if len(one.served) != told:
                told = len(one.served)
                print("serves", told, flush=True)
            assert one.bugs == []
            await one.changes(0.05)
        if not one.stopped:
            print("left", await one.nodes.leave(10.0), flush=True)
        listening.cancel()
    if one.stopped:
        print("stops", one.stopped, flush=True)
        return CONFLICT
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(serve(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7]))))
