"""`muster top` in a real terminal: what a person sees, which keys work, and a node that goes and comes back."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.client import Admin, Consumer, Producer
from tests.integration.cli.test_cli_node import Prompt
from tests.support.node import NodeProcess, running_node
from tests.support.pace import pace

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 20.0
LOOK_S = 0.05


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("top") / "data") as running:
        with Admin(bootstrap_servers=running.address) as admin:
            admin.create_topic("orders", 3)
        with Producer(bootstrap_servers=running.address) as producer:
            for number in range(120):
                producer.send("orders", b"x", partition=number % 3)
        yield running


class Terminal:
    """A tmux server of its own, with `muster top` in a window of the given size."""

    def __init__(self, tmp_path: Path, node: NodeProcess, width: int, height: int) -> None:
        self.socket = str(tmp_path / "tmux")
        # The program is named by its path: tmux's shell may know another one.
        program = f"cd {ROOT} && {sys.executable} -m muster top --every 0.2 --bootstrap {node.address}"
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), f"{program}; echo ended=$?; cat")

    def _tmux(self, *arguments: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        command = ["tmux", "-f", os.devnull, "-S", self.socket, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def until(self, seen: Callable[[str], bool]) -> str:
        """The first screen that is so; fails with the last one when there is none in time."""
        deadline = time.monotonic() + PATIENCE_S * pace()
        while time.monotonic() < deadline:
            screen = self.screen()
            if seen(screen):
                return screen
            time.sleep(LOOK_S)  # between two looks at another process
        raise AssertionError(f"this was on the screen:\n{screen}")

    def shows(self, *words: str) -> str:
        return self.until(lambda screen: all(word in screen for word in words))

    def end(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal(tmp_path: Path, node: NodeProcess) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed here: no terminal to look at")
    opened = Terminal(tmp_path, node, 80, 24)
    try:
        yield opened
    finally:
        opened.end()


def joined(node: NodeProcess, group: str, client_id: str) -> Consumer:
    consumer = Consumer(bootstrap_servers=node.address, group_id=group, client_id=client_id, enable_auto_commit=False)
    consumer.subscribe("orders")
    while not consumer.assignment():
        consumer.poll(0.05)
    return consumer


def test_a_person_watches_groups_opens_one_and_quits(node: NodeProcess, terminal: Terminal) -> None:
    with joined(node, "billing", "worker"), joined(node, "evil\x1b[2J\x07", "x\x1b[31m"):
        listed = terminal.shows("billing", "evil\\x1b[2J", "UNOWNED", "Stable")
        assert all(len(line) <= 80 for line in listed.splitlines())
        assert "LAST CAUSE" not in listed
        terminal.press("/", "b", "i", "l", "Enter")
        terminal.until(lambda screen: "billing" in screen and "evil" not in screen)
        terminal.press("Enter")
        opened = terminal.shows("orders  3 partitions", "last: #1 member joined by worker")
        assert "worker" in opened
        assert "111" in opened, "three partitions with forty records each"
        terminal.press("Escape")
        terminal.shows("[bil]")
    terminal.press("q")
    terminal.shows("ended=0")


def test_a_node_that_goes_is_said_to_be_away_and_seen_again(node: NodeProcess, terminal: Terminal) -> None:
    terminal.shows("groups,")
    node.stop()
    terminal.shows("no answer since")
    node.start()
    terminal.shows("the node answers again; it was away for")
    terminal.press("q")
    terminal.shows("ended=0")


def test_once_prints_plain_text_without_a_terminal(node: NodeProcess) -> None:
    with joined(node, "plain", "worker"):
        done = Prompt(node.address)("top", "--once")
        refused = Prompt(node.address)("top")
    assert done.code == 0
    heading, *rows = done.out.splitlines()
    assert heading.split()[:5] == ["GROUP", "TYPE", "STATE", "MEMB", "LAG"]
    row = next(row.split() for row in rows if row.startswith("plain "))
    assert row[:5] == ["plain", "classic", "Stable", "1", "120"]
    assert refused.code == 2
    assert "use muster top --once" in refused.err
