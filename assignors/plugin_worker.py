"""A plugin's process: `python -P -m muster.assignors.plugin_worker CHANNEL LIFELINE`, two descriptors.

The first frame says what to load and how much memory it may take; each further one is a question: a snapshot to plan,
or a check of the compliance suite. It imports little, because a caller waits for it. Other processes start this module
by its name, so it is never merged with another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import resource
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from muster.assignors.api import Assignor, AssignorError
from muster.assignors.plan_codec import pack_plan, unpack_question
from muster.assignors.plugin_process import Channel, ChannelClosed
from muster.assignors.run import calls_under_way, decided, place_in_plugin

NICE = 5
"""Whoever answers members goes before whoever plans."""

FORKS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "subprocess.Popen"})
"""Python's own words for starting a process, as its audit hooks hear them."""

MAX_SENTENCE = 4_000


def main(channel_descriptor: int, lifeline: int) -> None:
    exit_with_caller(lifeline)
    channel = Channel(socket.socket(fileno=channel_descriptor))
    with contextlib.suppress(ChannelClosed):
        hello, blob = channel.receive()
        prepare(hello["path"])
        limit_memory(hello["max_memory_bytes"])
        try:
            assignor: Assignor = pickle.loads(bytes(blob))
        except BaseException as error:  # a plugin's module may raise anything while it is imported
            channel.send({"error": f"cannot be loaded in a process of its own ({type(error).__name__}: {error})"})
            return
        limit_memory(hello["max_memory_bytes"])
        channel.send({})
        serve(channel, assignor)


def serve(channel: Channel, assignor: Assignor) -> None:
    """Answer until the other end closes. Who has run out of memory, or leaves processes behind, ends here."""
    own = os.getpid()
    while True:
        header, body = channel.receive()
        watch_deadline(channel, assignor, header.get("deadline_ms", 0))
        answer, plan = answer_question(assignor, header, body)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if os.getpid() != own:
            os._exit(1)  # a fork of the plugin's came back from it; only one of us may speak
        if has_child_processes():
            answer, plan = {"error": "left processes behind that it had started", "last": True}, b""
        channel.send(answer, plan)
        if answer.get("last"):
            return


def watch_deadline(channel: Channel, assignor: Assignor, deadline_ms: int) -> None:
    """At the deadline, say where the plugin is and end. The caller ends a process that cannot even say that."""

    def tell(_signal: int, frame: FrameType | None) -> None:
        place = place_in_plugin(assignor, calls_under_way(frame))
        with contextlib.suppress(ChannelClosed, OSError):
            channel.send({"overran": place, "last": True})
        os._exit(1)

    signal.signal(signal.SIGALRM, tell)
    signal.setitimer(signal.ITIMER_REAL, deadline_ms / 1000)


def answer_question(assignor: Assignor, header: dict[str, Any], body: Any) -> tuple[dict[str, Any], bytes]:
    try:
        if "check" in header:
            from muster.assignors.compliance import found

            return {"problem": found(header["check"], header["group"], assignor)}, b""
        snapshot = unpack_question(header, body)
        # What it is shown is this process's own; the caller checks the answer against what it sent.
        return pack_plan(snapshot, decided(assignor, assignor.name, snapshot, snapshot))
    except AssignorError as error:
        out = isinstance(error.__cause__, MemoryError)
        told = {"error": error.problem[:MAX_SENTENCE], "trace": error.trace}
        return {**told, "last": out, "memory": out}, b""
    except MemoryError:
        return {"error": "raised MemoryError", "last": True, "memory": True}, b""
    except BaseException as error:  # KeyboardInterrupt and the like: whoever asked is told, and it is over
        return {"error": f"raised {type(error).__name__}: {error}"[:MAX_SENTENCE], "last": True}, b""


def exit_with_caller(lifeline: int) -> None:
    """The caller holds the other end of this pipe and never writes: when it is gone, however it went, the kernel kills
    this process and all that it started, even in the middle of a call in C.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    else:
        signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        os.read(lifeline, 1)  # the end of the pipe: the caller went before we could ask to be told
        sys.exit(1)


def prepare(path: list[str]) -> None:
    """Modules are found as the caller finds them; processes are not started."""
    sys.path[:] = path
    with contextlib.suppress(OSError):
        os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in FORKS:
            raise PermissionError(f"{event}: an assignor that runs in a process of its own may not start another")

    sys.addaudithook(hook)


def limit_memory(max_bytes: int) -> None:
    """So much address space beyond what is in use now: then the plugin's next allocation is a MemoryError."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = pages * resource.getpagesize() + max_bytes
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    except (OSError, ValueError):
        return  # a system that has no such count keeps its own limits


def has_child_processes() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
