"""Runs plugins in processes of their own, kept warm and killed at their deadline.

`Isolation.run` is `muster.assignors.run.run` with a deadline that holds whatever the plugin does. A plugin that loops,
eats memory, exits, forks or prints costs its caller a failed plan, and other groups nothing. It is no jail: the process
runs as the same user. With `mode` "thread" plugins run in this process; a deadline then ends the wait and stops
nothing.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

from muster.assignors.api import Assignment, Assignor, AssignorError, RebalanceProtocol, Snapshot
from muster.assignors.plan_codec import pack_question, unpack_plan
from muster.assignors.plugin_process import PluginOverran, PluginProcess, describe_overrun, pack_assignor
from muster.assignors.run import calls_under_way, check_snapshot, is_ours, place_in_plugin, run, withheld

DEADLINE_MS = 10_000
"""For one plan, unless somebody says otherwise: the default of `group.assignor.deadline.ms`, too."""

MAX_PROCESSES = 4
MAX_MEMORY_BYTES = 1 << 30
KEPT = "the group keeps its last good assignment"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class IsolationLimits:
    """`mode` "thread" runs plugins in this process: then a deadline is an end of patience, and stops nobody."""

    mode: Literal["process", "thread"] = "process"
    max_processes: int = MAX_PROCESSES
    max_memory_bytes: int = MAX_MEMORY_BYTES
    show_output: bool = False
    """Whether what plugins print goes to this process's standard error; else it goes nowhere."""
    nice: int = 0
    """How far the processes stand back for others that want the processor, as in nice(1)."""


class Isolation:
    """Runs plugins in processes that are kept warm; may be used from many threads at once.

    A plugin has as many processes as it has plans under way at a time, `max_processes` all plugins together; one that
    idles makes room for another plugin's. `close` ends them all; so does the end of this process, however it comes.
    """

    def __init__(self, limits: IsolationLimits | None = None) -> None:
        self._limits = limits or IsolationLimits()
        self._changed = threading.Condition()
        self._idle: deque[tuple[bytes, PluginProcess]] = deque()
        """The longest idle first."""
        self._processes: set[PluginProcess] = set()
        self._starting = 0
        self._closed = False
        self._apart: list[Isolation] = []

    def apart(self, *, nice: int = 0, max_processes: int | None = None) -> Isolation:
        """One with processes of its own: nobody who waits for a place here waits for them. It ends with this one.

        `nice`: how far they stand back for others that want the processor.
        """
        limits = self._limits
        made = Isolation(replace(limits, nice=nice, max_processes=max_processes or limits.max_processes))
        self._apart.append(made)
        return made

    @property
    def by_process(self) -> bool:
        return self._limits.mode == "process"

    def run(
        self, assignor: Assignor, snapshot: Snapshot, deadline_ms: int, *, withhold: bool = True, remedy: str = KEPT
    ) -> Assignment:
        """As `muster.assignors.run.run`. Assignors of this package run here, untimed.

        Raises AssignorError; PluginOverran, whose sentence ends with `remedy`, for one that was not done after so many
        milliseconds of its own.
        """
        if is_ours(assignor):
            return run(assignor, snapshot, withhold)
        late = f"was not done after {{deadline_ms}} ms; {remedy}"
        if not self.by_process:
            return run_in_thread(assignor.name, lambda: run(assignor, snapshot, withhold), deadline_ms, late, assignor)
        return self.run_apart(assignor, snapshot, deadline_ms, withhold, late)

    def run_apart(
        self, assignor: Assignor, snapshot: Snapshot, deadline_ms: int, withhold: bool, late: str
    ) -> Assignment:
        """As `run`, in a process of its own whoever wrote it."""
        check_snapshot(assignor.name, snapshot)
        try:
            header, body, tabled = pack_question(snapshot)
        except (ValueError, TypeError) as error:
            raise AssignorError(assignor.name, f"cannot run: {error}") from error
        answer, plan = self.ask_plugin(assignor, header, body, deadline_ms, late)
        target = unpack_plan(assignor.name, tabled, answer, plan)
        return withheld(tabled, target) if withhold and assignor.protocol is RebalanceProtocol.COOPERATIVE else target

    def ask_plugin(
        self, assignor: Assignor, header: dict[str, Any], body: bytes, deadline_ms: int, late: str
    ) -> tuple[dict[str, Any], Any]:
        """One question to a process of this plugin. Raises AssignorError."""
        key = pack_assignor(assignor)
        process = self._take_process(key, assignor, deadline_ms)
        try:
            return process.exchange_message(header, body, deadline_ms, late)
        finally:
            self._give_back(key, process)

    def close(self) -> None:
        """Kill every process, those at work too: whoever waits for one gets an error."""
        for other in self._apart:
            other.close()
        with self._changed:
            self._closed = True
            idle = [process for _, process in self._idle]
            self._idle.clear()
            self._processes.difference_update(idle)
            at_work = tuple(self._processes)
            self._changed.notify_all()
        for process in idle:
            process.kill()
        for process in at_work:
            process.stop()

    def _take_process(self, key: bytes, assignor: Assignor, patience_ms: int) -> PluginProcess:
        """A warm process of this plugin, or a new one; waits at most so long for a place."""
        until_s = time.monotonic() + patience_ms / 1000
        with self._changed:
            while True:
                if self._closed:
                    raise AssignorError(assignor.name, "is not run any more: its caller is shutting down")
                for place, (known, process) in enumerate(self._idle):
                    if known == key:
                        del self._idle[place]
                        return process
                if self._starting + len(self._processes) < self._limits.max_processes or self._evict():
                    self._starting += 1
                    break
                if not self._changed.wait(until_s - time.monotonic()):
                    raise AssignorError(
                        assignor.name,
                        f"found no place within {patience_ms} ms: {self._limits.max_processes} plans of plugins run "
                        "already, as many as may (on a node: group.assignor.max.processes)",
                    )
        return self._started(assignor)

    def _evict(self) -> bool:
        """Make room by ending the process that has been idle for longest."""
        if not self._idle:
            return False
        _, process = self._idle.popleft()
        self._processes.discard(process)
        process.kill()
        return True

    def _started(self, assignor: Assignor) -> PluginProcess:
        process = None
        try:
            process = PluginProcess(
                assignor, self._limits.max_memory_bytes, self._limits.show_output, self._limits.nice
            )
            return process
        except OSError as error:
            raise AssignorError(assignor.name, f"no process could be started for it ({error})") from error
        finally:
            with self._changed:
                self._starting -= 1
                if process is not None:
                    self._processes.add(process)
                    if self._closed:  # while it started: whoever is about to ask it hears that it has ended
                        process.stop()
                self._changed.notify_all()

    def _give_back(self, key: bytes, process: PluginProcess) -> None:
        with self._changed:
            if process.alive and not self._closed:
                self._idle.append((key, process))
            else:
                self._processes.discard(process)
                process.kill()
            self._changed.notify_all()


@lru_cache(maxsize=1)
def shared_isolation() -> Isolation:
    """The one of tools, drivers and tests, which have no settings of a node: what plugins print is shown."""
    return isolation_until_exit(IsolationLimits(show_output=True))


def isolation_until_exit(limits: IsolationLimits) -> Isolation:
    """One that nobody closes before this program ends."""
    made = Isolation(limits)
    atexit.register(made.close)
    return made


def decide_for_tool(assignor: Assignor, snapshot: Snapshot, withhold: bool) -> Assignment:
    """A plan for a tool: within the time that a group gives its assignor unless told otherwise."""
    return shared_isolation().run(
        assignor, snapshot, DEADLINE_MS, withhold=withhold, remedy="mend it, or use another one"
    )


def run_in_thread(
    name: str, work: Callable[[], Result], deadline_ms: int, late: str, plugin: Assignor | None = None
) -> Result:
    """What `work` gives or raises. Past the deadline it goes on by itself, in a thread that keeps no process alive.

    The error of a plugin says where it was then.
    """
    answers: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()

    def body() -> None:
        try:
            answers.put((work(), None))
        except BaseException as error:  # it is raised where somebody waits for it
            answers.put((None, error))

    thread = threading.Thread(target=body, name="muster-assignor", daemon=True)
    thread.start()
    try:
        result, error = answers.get(timeout=deadline_ms / 1000)
    except Empty:
        calls = calls_under_way(sys._current_frames().get(thread.ident or 0))
        place = "" if plugin is None else place_in_plugin(plugin, calls)
        raise PluginOverran(name, describe_overrun(late.format(deadline_ms=deadline_ms), place)) from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
