"""ZooKeeper consumers of Kafka 0.8.2 and 1.1, and ours, through the same events on one ZooKeeper: what each costs.

The old ones are real, from Maven's jars, all in one JVM (`OldConsumers.java`); ours are `AsyncConsumer`s in this
process. They read from one node. Whether every partition is owned again is seen as any tool of that era sees it, in
the owner registry; requests and watches are the server's own figures (`mntr`).
"""

import asyncio
import contextlib
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from muster.client.aio import AsyncAdmin, AsyncConsumer
from muster.coordinator.java_runtime import find_java
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.local_ensemble import HOST, LocalEnsemble, ServerTuning, open_or_create_ensemble
from muster.workshop.bench.kafka_peer import find_jars
from muster.workshop.bench.processes import BenchFailed, Stopwatch, run_node, stop_process
from muster.workshop.bench.zookeeper_load import monitor
from muster.workshop.bench.zookeeper_wire import (
    OK,
    WireReply,
    WireSession,
    children_frame,
    get_frame,
    read_data,
    read_names,
)

RELEASES: Final = {
    "Kafka 0.8.2.2": "org.apache.kafka:kafka_2.11:0.8.2.2",
    "Kafka 1.1.1": "org.apache.kafka:kafka_2.12:1.1.1",
}
OURS: Final = "Muster"
TOPIC: Final = "orders"
SESSION_MS: Final = 6_000
LOOK_AGAIN_S: Final = 0.02
QUIET_S: Final = 1.0
"""What a rebalance leaves behind (commits, watches set again) is over by then, and counted with it."""
PATIENCE_S: Final = 120.0
FIRED: Final = ("zk_sum_node_children_watch_count", "zk_sum_node_changed_watch_count")


class OldClientCosts(NamedTuple):
    """One event of one kind of consumers. `consumers`: how many there are after it."""

    client: str
    event: str
    consumers: int
    seconds: float
    watches_fired: int
    requests: int


class ComparedConsumers(Protocol):
    """Consumers of one group, of one kind."""

    async def join(self, count: int) -> None: ...

    async def leave(self) -> None: ...


def compare_old_clients(consumers: int, partitions: int) -> Iterator[OldClientCosts]:
    """Raises BenchFailed, JarsUnavailable, JavaNotFound, ZooKeeperError."""
    jars = {client: os.pathsep.join(map(str, find_jars(name))) for client, name in RELEASES.items()}
    tuning = ServerTuning(logs=False, tied=True)
    with tempfile.TemporaryDirectory(prefix="muster-lab-") as home, contextlib.ExitStack() as stack:
        ensemble = open_or_create_ensemble(Path(home) / "zookeeper", 1, tuning=tuning)
        ensemble.start()
        stack.callback(ensemble.stop)
        settings = {"zookeeper.connect": ensemble.connect, "kafka.listeners": "127.0.0.1:0"}
        address = stack.enter_context(run_node(str(Path(home) / "node"), settings)).address
        runner = stack.enter_context(asyncio.Runner())
        runner.run(make_topic(address, partitions))
        for client in (*RELEASES, OURS):
            run = OldClientRun(ensemble, client, consumers, partitions)
            yield from runner.run(run.measure(jars.get(client, "")))


async def make_topic(address: str, partitions: int) -> None:
    async with AsyncAdmin({"bootstrap.servers": address}) as admin:
        await admin.create_topic(TOPIC, partitions)


class OldClientRun:
    """One kind of consumers, from the first join on."""

    def __init__(self, ensemble: LocalEnsemble, client: str, consumers: int, partitions: int) -> None:
        self._ensemble, self._client = ensemble, client
        self._consumers, self._partitions = consumers, partitions
        self._group = client.lower().replace(" ", "-")
        self._costs: list[OldClientCosts] = []

    async def measure(self, jars: str) -> list[OldClientCosts]:
        port = self._ensemble.servers[0].port
        looking = await WireSession.opened(HOST, port, SESSION_MS, lambda _: None, lambda: None)
        async with self._living(jars) as consumers:
            await self._note(looking, "join of all", self._consumers, partial(consumers.join, self._consumers))
            await self._note(looking, "one joins", self._consumers + 1, partial(consumers.join, 1))
            await self._note(looking, "one leaves", self._consumers, consumers.leave)
        await looking.close()
        return self._costs

    @contextlib.asynccontextmanager
    async def _living(self, jars: str) -> AsyncIterator[ComparedConsumers]:
        connect = self._ensemble.connect
        if not jars:
            async with OurConsumers(connect, self._group) as ours:
                yield ours
            return
        with as_file(files("muster.workshop.lab") / "OldConsumers.java") as source:
            process = start_old_consumers(jars, str(source), connect, self._group)
            try:
                theirs = OldConsumers(process)
                await theirs.wait_for("ready")
                yield theirs
            finally:
                stop_process(process)

    async def _note(self, looking: WireSession, event: str, after: int, happen: Any) -> None:
        before, asked, watch = monitor(self._ensemble), looking.requests, Stopwatch()
        happening = asyncio.create_task(happen())
        await self._all_own(looking, after)
        seconds = watch.read()
        await happening
        await asyncio.sleep(QUIET_S)
        now, asked = monitor(self._ensemble), looking.requests - asked
        fired = sum(now.get(name, 0) - before.get(name, 0) for name in FIRED)
        requests = now["zk_packets_received"] - before["zk_packets_received"] - asked
        self._costs.append(OldClientCosts(self._client, event, after, round(seconds, 2), fired, requests))

    async def _all_own(self, looking: WireSession, consumers: int) -> None:
        """Return once so many consumers own all partitions, in shares that differ by one at most."""
        owners: Counter[str] = Counter()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    owners = await self._owners(looking)
                    whole = owners.total() == self._partitions and len(owners) == consumers
                    if whole and max(owners.values()) - min(owners.values()) <= 1:
                        return
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            raise BenchFailed(
                f"{consumers} consumers ({self._client}) do not own {self._partitions} partitions after "
                f"{PATIENCE_S:.0f} s: {len(owners)} own {owners.total()}"
            ) from None

    async def _owners(self, looking: WireSession) -> Counter[str]:
        """Consumer -> how many partitions it owns."""
        place = layout.topic_owners_path(self._group, TOPIC)
        listed = await looking.answer(children_frame(place))
        names = read_names(listed) if listed.code == OK else []
        paths = [f"{place}/{name}" for name in names]
        replies: list[WireReply] = list(await asyncio.gather(*(looking.answer(get_frame(path)) for path in paths)))
        found = [(path, reply) for path, reply in zip(paths, replies, strict=True) if reply.code == OK]
        return Counter(layout.read_owner(path, read_data(reply)[0])[0] for path, reply in found)


# The consumers
# -------------


class OldConsumers:
    """In one JVM."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    async def join(self, count: int) -> None:
        await self._tell(f"join {count}")

    async def leave(self) -> None:
        await self._tell("leave")

    async def _tell(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}\n".encode())
        self._process.stdin.flush()
        await self.wait_for("done")

    async def wait_for(self, word: str) -> None:
        """The next line that is this word; loggers may write others before."""
        assert self._process.stdout is not None
        while line := await asyncio.to_thread(self._process.stdout.readline):
            if line.strip() == word.encode():
                return
        raise BenchFailed(f"the JVM of the old consumers ended with {self._process.wait()} before it said {word!r}")


def start_old_consumers(jars: str, source: str, connect: str, group: str) -> "subprocess.Popen[bytes]":
    java = [str(find_java().executable), "-Xmx256m", "-XX:+UseSerialGC", "-cp", jars, source]
    return subprocess.Popen(
        [*java, connect, group, TOPIC, str(SESSION_MS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


class OurConsumers:
    """In this process, and polled. Use it in `async with`."""

    def __init__(self, connect: str, group: str) -> None:
        self._properties = {
            "group.protocol": "zookeeper",
            "group.id": group,
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "rebalance.max.retries": "20",
            "rebalance.backoff.ms": "2000",
        }
        self._living: list[tuple[AsyncConsumer, asyncio.Task[None]]] = []

    async def __aenter__(self) -> "OurConsumers":
        return self

    async def __aexit__(self, *_: object) -> None:
        while self._living:
            await self.leave()

    async def join(self, count: int) -> None:
        for _ in range(count):
            consumer = AsyncConsumer(self._properties)
            await consumer.subscribe([TOPIC])
            self._living.append((consumer, asyncio.create_task(poll_on(consumer))))

    async def leave(self) -> None:
        consumer, polling = self._living.pop()
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await consumer.close()


async def poll_on(consumer: AsyncConsumer) -> None:
    while True:
        await consumer.poll(0.1)
