"""A TCP proxy between members and a node that can stall or break connections."""

import asyncio
import socket
import threading
from contextlib import suppress

CHUNK = 65_536


class Link:
    """A connection through the proxy."""

    def __init__(self, incoming: asyncio.StreamWriter, outgoing: asyncio.StreamWriter) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        self._ends = (incoming, outgoing)

    async def pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(CHUNK):
                await self.flows.wait()
                target.write(chunk)
                await target.drain()
        await self.flows.wait()
        for end in self._ends:
            end.close()

    def abort(self) -> None:
        for end in self._ends:
            end.transport.abort()


class Proxy:
    """Listens on a free loopback port; `start` gives it the node's address."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._target: tuple[str, int] | None = None
        self._links: dict[int, Link] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listener))
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._target is not None
        port = writer.get_extra_info("peername")[1]
        try:
            onward, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        link = self._links[port] = Link(writer, back)
        await asyncio.gather(link.pump(reader, back), link.pump(onward, writer))
        self._links.pop(port, None)

    def cut(self, ports: set[int]) -> None:
        """Stall connections from these ports; they stay open."""
        self._loop.call_soon_threadsafe(lambda: [link.flows.clear() for link in self._of(ports)])

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(lambda: [link.flows.set() for link in self._links.values()])

    def reset(self, ports: set[int]) -> None:
        """Break connections from these ports."""
        self._loop.call_soon_threadsafe(lambda: [link.abort() for link in self._of(ports)])

    def _of(self, ports: set[int]) -> list[Link]:
        return [link for port, link in self._links.items() if port in ports]

    def stop(self) -> None:
        def end() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_soon(self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._listener.close()
