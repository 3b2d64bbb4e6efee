"""What all demos share: how a run tells what happens, and its processes. These are started apart from the terminal's
Ctrl-C, stopped in order, and gone in every case.

A child's standard input is a pipe that the parent never writes to. When the parent dies, however it dies, the pipe
closes and the child ends by itself.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from rich.text import Text

from muster.cli.common.commands import CommandError, raise_if_interrupted
from muster.cli.common.options import ENVIRONMENT
from muster.cli.common.output import console

GRACE_S = 5.0
START_S = 30.0
LAST_LINES = 5
NODE = "node"
"""What the names of nodes begin with: they are stopped last."""


LOOK_S = 0.05
PATIENCE_S = 60.0
"""How long a demo waits for what it expects."""
INDENT = 9
"""The width of the seconds before each line."""


class DemoNode(NamedTuple):
    """A running node: where it listens for each kind of client."""

    address: str
    kafka_address: str
    pid: int


class DemoProcesses:
    """Processes by name. Use it in a `with`: on the way out the youngest are stopped first, the node last."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Run `muster ARGUMENTS`; what it says on standard error goes to NAME.log."""
        with self.log_of(name).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "muster.cli", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                # What the user's clients show belongs to another node than the demo's own.
                env={name: value for name, value in os.environ.items() if name != ENVIRONMENT},
            )
        self._running[name] = process
        return process

    def start_node(self, arguments: Sequence[str], name: str = NODE, listen: str = "127.0.0.1:0") -> DemoNode:
        """Start a node and wait for the line by which it says that it answers. Raises CommandError."""
        return self.answers(self.begin_node(arguments, name, listen), name)

    def begin_node(
        self, arguments: Sequence[str], name: str = NODE, listen: str = "127.0.0.1:0"
    ) -> subprocess.Popen[bytes]:
        """Start a node, of which nobody knows yet whether it answers."""
        both_doors = ["--listen", listen, "--kafka-listen", "127.0.0.1:0", "--http", ""]
        return self.start(name, ["serve", "--announce", "--until-eof", *both_doors, *arguments])

    def answers(self, process: subprocess.Popen[bytes], name: str) -> DemoNode:
        """Wait for the line by which a node says so. Raises CommandError."""
        line = first_line(process, START_S)
        if not line:
            raise CommandError(f"{name} did not start: {self.last_words(name)}", "", "its log says more (--keep)")
        said = json.loads(line)
        return DemoNode(f"{said['host']}:{said['port']}", f"{said['kafka_host']}:{said['kafka_port']}", process.pid)

    def kill(self, name: str) -> int:
        """SIGKILL: no time to say goodbye to anybody. Returns the process id."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        close_pipes(process)
        return process.pid

    def stop(self, names: Iterable[str]) -> None:
        """SIGTERM to all of them, SIGKILL to those that are still there after a while."""
        stopping = {name: self._running.pop(name) for name in names}
        for process in stopping.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        for process in stopping.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            close_pipes(process)

    def must_be_alive(self) -> None:
        """Raises CommandError when one ended that nobody asked to end."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise CommandError(
                    f"{name} ended unexpectedly with exit code {process.returncode}: {self.last_words(name)}",
                    "expected it to run until it is told to stop",
                    "its log says more (--keep)",
                )

    def log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def last_words(self, name: str) -> str:
        lines = self.log_of(name).read_text(errors="replace").splitlines()[-LAST_LINES:]
        return " | ".join(line.strip() for line in lines if line.strip()) or "it said nothing"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        without_ctrl_c(self._stop_everyone)

    def _stop_everyone(self) -> None:
        self.stop([name for name in self._running if not name.startswith(NODE)])
        self.stop(list(self._running))


class DemoRun:
    """One run of a demo: what happens is told with the seconds since it began. Once its processes are there they are
    `_children`."""

    _children: DemoProcesses

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._out = console()
        self._began = time.monotonic()

    def _say(self, text: str) -> None:
        said = Text(text)
        lines = said.wrap(self._out, self._out.width - INDENT) if self._out.is_terminal else [said]
        for at, line in enumerate(lines):
            since = f"{time.monotonic() - self._began:5.1f} s  " if at == 0 else " " * INDENT
            self._out.print(Text.assemble((since, "dim"), line), soft_wrap=True)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Look again and again until it holds. Raises CommandError when that takes too long, or a process ended."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            raise_if_interrupted()
            self._children.must_be_alive()
            if time.monotonic() > deadline:
                raise CommandError(f"not within {PATIENCE_S:g} s: {what}", "", "the logs say more (--keep)")
            time.sleep(LOOK_S)


def without_ctrl_c(work: Callable[[], None]) -> None:
    """Clean up to the end, also when somebody is impatient."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        work()
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def first_line(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """The first line on standard output; empty when the process ended, or said nothing in time."""
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in said and selector.select(max(0.0, deadline - time.monotonic())):
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk:
                process.wait()
                return b""
            said += chunk
    return said if b"\n" in said else b""


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
