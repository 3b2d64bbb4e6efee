"""Nodes as processes (`of_many`), and clients that commit to whoever takes it and remember what was acknowledged."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0
SHARDS = 6
SESSION_MS = 3_000
LONG_MS = 20_000
"""Where nobody's session is to end."""
GROUPS = [f"g{number}" for number in range(12)]
READ = -1


class News:
    """Whoever waits for something looks again when there are any."""

    def __init__(self) -> None:
        self._told = asyncio.Event()

    def tell(self) -> None:
        self._told.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._told.clear()
                await self._told.wait()


class Process:
    """A node. `serves`: how many shards, as it told last; `said`: what else it told."""

    def __init__(self, node: int, news: News) -> None:
        self.node = node
        self._news = news
        self.serves = 0
        self.said: list[str] = []
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[tuple[int, str]]] = {}
        self._child: asyncio.subprocess.Process
        self._listening: asyncio.Task[None]

    async def start(self, address: str, cluster: str, session_ms: int, copies: int) -> "Process":
        words = [address, cluster, str(SHARDS), str(self.node), str(session_ms), str(copies)]
        self._child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.kafka_backend.of_many", *words),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._listening = asyncio.ensure_future(self._listen())
        return self

    @property
    def lives(self) -> bool:
        return self._child.returncode is None and not self._listening.done()

    async def ask(self, group: str, offset: int = READ, *, within_s: float = 2.0) -> tuple[int, str]:
        """The offset, and a code by its name."""
        if not self.lives:
            return READ, "GONE"
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._child.stdin is not None
        self._child.stdin.write(f"{number} {group} {offset}\n".encode())
        try:
            async with asyncio.timeout(within_s):
                return await waiting
        except TimeoutError:
            return READ, "SILENT"
        finally:
            self._waiting.pop(number, None)

    def signal(self, what: signal.Signals) -> None:
        self._child.send_signal(what)

    async def ended(self) -> int:
        """Its exit code."""
        async with asyncio.timeout(PATIENCE_S):
            code = await self._child.wait()
            await self._listening
        return code

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        await self.ended()

    async def _listen(self) -> None:
        assert self._child.stdout is not None
        while (line := (await self._child.stdout.readline()).decode()).endswith("\n"):  # the last one may be torn
            words = line.split()
            if words[0] == "serves":
                self.serves = int(words[1])
            elif words[0] == "answer":
                waiting = self._waiting.pop(int(words[1]), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result((int(words[2]), words[3]))
            else:
                self.said.append(line.rstrip())
            self._news.tell()
        self.serves = 0
        self._news.tell()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result((READ, "GONE"))


class Clients:
    """One for each group; each commits the next number to whoever takes it, and reads every now and then.

    acked: by group. wrong: what was read and is older than what was acknowledged before it was asked for.
    """

    def __init__(self, groups: Sequence[str], nodes: Callable[[], list[Process]], news: News) -> None:
        self._news = news
        self.acked = dict.fromkeys(groups, 0)
        self.sent = dict.fromkeys(groups, 0)
        self.wrong: list[str] = []
        self.longest_s = 0.0
        """Between two acknowledgements of one group."""
        self._nodes = nodes
        self._ends = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.ensure_future(self._client(group)) for group in self.acked]

    async def stop(self) -> None:
        self._ends = True
        await asyncio.gather(*self._tasks)

    async def more(self, commits: int = 3) -> None:
        """Until each group has so many more acknowledged."""
        wanted = {group: acked + commits for group, acked in self.acked.items()}

        def there() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return all(self.acked[group] >= number for group, number in wanted.items())

        await self._news.until(there)

    async def all_there(self) -> None:
        """What was acknowledged is read, of every group."""
        for group, acked in self.acked.items():
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    found = await self._read(group)
                    if found is not None:
                        break
                    await asyncio.sleep(0.02)  # nobody has it: as a client backs off
            assert acked <= found <= self.sent[group], (group, acked, found, self.sent[group])
        assert self.wrong == []

    async def _client(self, group: str) -> None:
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        while not self._ends:
            self.sent[group] += 1
            while not self._ends:
                if await self._commits(group, self.sent[group]):
                    self.acked[group] = self.sent[group]
                    self._news.tell()
                    self.longest_s, last_s = max(self.longest_s, loop.time() - last_s), loop.time()
                    break
                await asyncio.sleep(0.01)
            before = self.acked[group]
            found = await self._read(group)
            if found is not None and found < before:
                self.wrong.append(f"{group}: {found} is read, {before} was acknowledged")

    async def _commits(self, group: str, number: int) -> bool:
        for node in self._nodes():
            code = (await node.ask(group, number))[1]
            if code == "NONE":
                return True
            if code == "SILENT":
                return False
        return False

    async def _read(self, group: str) -> int | None:
        for node in self._nodes():
            offset, code = await node.ask(group)
            if code == "NONE":
                return offset
        return None


class Nodes:
    """Three of them, and clients that commit all the time. addresses: where each reaches the upstream."""

    def __init__(self, addresses: Mapping[int, str], cluster: str, session_ms: int, copies: int) -> None:
        self.addresses, self.cluster, self.session_ms, self.copies = addresses, cluster, session_ms, copies
        self.nodes: dict[int, Process] = {}
        self.others: list[Process] = []
        self.news = News()
        self.clients = Clients(GROUPS, lambda: list(self.nodes.values()), self.news)

    async def begin(self, node: int) -> Process:
        started = await Process(node, self.news).start(self.addresses[node], self.cluster, self.session_ms, self.copies)
        if node in self.nodes:
            self.others.append(self.nodes[node])
        self.nodes[node] = started
        return started

    async def share(self, *counts: int) -> None:
        """Until the nodes serve so many shards each, in any order."""
        await self.news.until(lambda: sorted(node.serves for node in self.nodes.values()) == sorted(counts))


@asynccontextmanager
async def three(
    address: str | Mapping[int, str], cluster: str, session_ms: int = SESSION_MS, copies: int = 1
) -> AsyncIterator[Nodes]:
    """At its end all goes on, and what was acknowledged is there."""
    addresses = dict.fromkeys((1, 2, 3), address) if isinstance(address, str) else address
    nodes = Nodes(addresses, cluster, session_ms, copies)
    try:
        for node in (1, 2, 3):
            await nodes.begin(node)
        await nodes.share(2, 2, 2)
        nodes.clients.start()
        await nodes.clients.more()
        yield nodes
        await nodes.clients.more()
        await nodes.clients.stop()
        await nodes.clients.all_there()
    finally:
        for each in [*nodes.nodes.values(), *nodes.others]:
            if each.lives:
                each.signal(signal.SIGCONT)
            await each.kill()
