"""Networks between real nodes that can be cut: forwarders stand before each node's door and on its way to ZooKeeper.

A cut is silent, as a network's is: connections stay, nothing comes through, and what was on its way arrives when it is
mended. Who calls at a node's door is read from the client id of his first request (`replication.wire.apis`).
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from muster.coordinator.zookeeper.local_ensemble import free_port
from tests.support.cluster_nodes import SETTINGS, ClusterNodes

ZOOKEEPER: Final = 0
"""As one end of a way: nodes are numbered from 1 on."""

BYTES: Final = 1 << 16
CLIENT_ID_AT: Final = 4 + 2 + 2 + 4
"""In a request's frame: after size, API key, version and correlation id."""

Value = TypeVar("Value")


class Way(NamedTuple):
    """What goes from one end to the other, be it asked or answered."""

    source: int
    target: int


class Cuts:
    """All ways of one cluster, forwarded by a loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._cut: set[Way] = set()
        self._mended = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        async def end() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, source: int, *targets: int, one_way: bool = False) -> None:
        """From now on nothing gets from `source` to these, nor back but for `one_way`."""
        ways = {Way(source, target) for target in targets}
        ways |= set() if one_way else {Way(target, source) for target in targets}
        self._do(lambda: self._cut.update(ways))

    def mend(self) -> None:
        """All ways are open, and what waited goes on."""

        def open_all() -> None:
            self._cut.clear()
            self._mended.set()
            self._mended = asyncio.Event()

        self._do(open_all)

    def to_zookeeper(self, node: int, address: str) -> str:
        """Where that node reaches the server at `address` instead."""
        host, port = address.rsplit(":", 1)
        return self._forward(node, host, int(port))

    def to_node(self, node: int, port: int) -> str:
        """Where others reach that node's door, which listens on `port`."""
        return self._forward(None, "127.0.0.1", port, node)

    def _do(self, what: Callable[[], Value]) -> Value:
        async def done() -> Value:
            return what()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(10)

    def _forward(self, caller: int | None, host: str, port: int, target: int = ZOOKEEPER) -> str:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                first = b"" if caller is not None else await reader.readexactly(CLIENT_ID_AT + 2)
                if caller is None:
                    name = await reader.readexactly(int.from_bytes(first[-2:], "big"))
                    source, first = int(name.rpartition(b"/")[2]), first + name
                else:
                    source = caller
                await self._until_open(Way(source, target))
                there_reader, there_writer = await asyncio.open_connection(host, port)
            except (OSError, EOFError):
                writer.transport.abort()
                return
            there_writer.write(first)
            await asyncio.gather(
                self._carry(Way(source, target), reader, there_writer),
                self._carry(Way(target, source), there_reader, writer),
            )

        async def listen() -> str:
            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)

    async def _until_open(self, way: Way) -> None:
        while way in self._cut:
            await self._mended.wait()

    async def _carry(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(BYTES):
                await self._until_open(way)
                writer.write(data)
                await writer.drain()
            await self._until_open(way)
            writer.close()
        except OSError:
            writer.transport.abort()


@contextmanager
def cluster_with_cuts(
    directory: Path, connect: str, settings: dict[str, str] | None = None
) -> Iterator[tuple[ClusterNodes, Cuts]]:
    """Three nodes that reach ZooKeeper (one server) and each other by ways that can be cut. Their clients' doors are
    open all the time."""
    cuts = Cuts()
    server, _, chroot = connect.partition("/")
    cluster = ClusterNodes(directory, connect, settings=settings)
    for number, node in cluster.nodes.items():
        port = free_port()
        node.settings |= {
            "inter.broker.listeners": f"127.0.0.1:{port}",
            "inter.broker.advertised.listeners": cuts.to_node(number, port),
            "zookeeper.connect": f"{cuts.to_zookeeper(number, server)}/{chroot}",
            # Who forwards answers for a node that is not there.
            "broker.eviction.on.refusal": "false",
        }
    try:
        cluster.start()
        yield cluster, cuts
    finally:
        cuts.mend()
        cluster.stop()
        cuts.stop()


__all__ = ["SETTINGS", "ZOOKEEPER", "Cuts", "Way", "cluster_with_cuts"]
