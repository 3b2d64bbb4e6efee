"""A node with groups in it, and pages of a real Chromium that notice whatever they should not do."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from muster.client import Admin, Consumer
from tests.support.node import NodeProcess

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
AXE = "axe-core@4.14.1"
EVIL_GROUP = "<script>alert(1)</script>/?&\"'"
EVIL_CLIENT = "<img src=x onerror=alert(2)>"
EVIL_TOPIC = "a.b_c-d"
SETTINGS = {"http.listeners": "127.0.0.1:0", "observe.sample.ms": "1000"}


class Reader:
    """A consumer that polls in a thread of its own until it is told to go."""

    def __init__(self, address: str, group: str, client: str, topics: list[str]) -> None:
        self._going = threading.Event()
        self._arguments = (address, group, client, topics)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        address, group, client, topics = self._arguments
        config = {"bootstrap_servers": address, "group_id": group, "client_id": client, "auto_offset_reset": "earliest"}
        with Consumer(**config, auto_commit_interval_ms=500, session_timeout_ms=10_000) as consumer:
            consumer.subscribe(topics)
            while not self._going.is_set():
                consumer.poll(0.1)

    def leave(self) -> None:
        self._going.set()
        self._thread.join(30)


class Seeded:
    """A node, and who reads from it."""

    def __init__(self, node: NodeProcess, admin: Admin) -> None:
        self.node, self.admin = node, admin
        self.readers: list[Reader] = []

    @property
    def url(self) -> str:
        return f"http://{self.node.http}"

    def join(self, group: str, client: str, topics: list[str]) -> Reader:
        """Come, and wait until the ledger has it."""
        before = len(self.admin.explain(group)) if group in self.groups() else 0
        reader = Reader(self.node.address, group, client, topics)
        self.readers.append(reader)
        wait_until(lambda: group in self.groups() and self.settled(group, client, before))
        return reader

    def groups(self) -> set[str]:
        return {group.group_id for group in self.admin.list_groups()}

    def settled(self, group: str, client: str, before: int) -> bool:
        found = self.admin.describe_group(group)
        here = any(member.client_id == client and member.assignment for member in found.members)
        return here and found.state == "Stable" and len(self.admin.explain(group)) > before


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The application behind a real port, in a thread of its own; yields its address."""
    taken = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
    finally:
        server.force_exit = server.should_exit = True
        thread.join(30)


def wait_until(true: Any) -> None:
    """For what the node is asked; the test's own time limit ends it."""
    pause = threading.Event()
    while not true():
        pause.wait(0.05)


class Watched:
    """A page of the chromium, and whatever it should not have done."""

    def __init__(self, chromium: Any, url: str, **options: Any) -> None:
        self.url = url
        self.wrong: list[str] = []
        self.context = chromium.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", lambda said: self._say(said.text) if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self._say(str(error)))
        self.page.on("dialog", lambda dialog: (self._say(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._asked)

    def _say(self, text: str) -> None:
        self.wrong.append(text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.url + "/"):
            self._say(f"asked another host: {request.url}")

    def open(self, path: str) -> Any:
        answer = self.page.goto(self.url + path)
        assert answer.status == 200, f"{path}: {answer.status}"
        return self.page
