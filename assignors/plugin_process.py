"""The process of one plugin, from the caller's side: started, asked, killed; and the channel between both.

The two ends exchange frames over a pair of Unix sockets: a header in JSON and a body of bytes. A frame is uint32
length of the header, uint64 length of the body, uint8 where the body is (0: it follows the header; 1: in shared
memory, whose descriptor comes along). Neither end trusts a length, and every wait has a deadline.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from muster.assignors.api import Assignor, AssignorError

# What the two ends say to each other
# -----------------------------------

HEAD = struct.Struct("!IQB")
INLINE, SHARED = 0, 1
MAX_HEADER_BYTES = 16 << 20
MAX_BODY_BYTES = 4 << 30
SHARED_FROM_BYTES = 1 << 20
"""A body of this size or more is handed over as shared memory where the system has it; a smaller one is copied."""
CHUNK_BYTES = 1 << 20


class ChannelClosed(Exception):
    """The other end is gone."""


class GarbledFrame(Exception):
    """The other end sent what is no frame."""


class Channel:
    """One end. `deadline_s` is a reading of `time.monotonic`; None waits for ever. Raises TimeoutError past it."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, header: dict[str, Any], body: bytes = b"", deadline_s: float | None = None) -> None:
        text = json.dumps(header, separators=(",", ":")).encode("utf-8", "surrogatepass")
        if len(body) >= SHARED_FROM_BYTES and hasattr(os, "memfd_create"):
            self._send_shared(text, body, deadline_s)
        else:
            self._send_all(HEAD.pack(len(text), len(body), INLINE) + text + body, deadline_s)

    def receive(self, deadline_s: float | None = None) -> tuple[dict[str, Any], bytes | mmap.mmap]:
        """One frame. A body in shared memory is mapped for reading, not copied."""
        first, descriptors = self._wait(lambda: socket.recv_fds(self._socket, HEAD.size, 1)[:2], deadline_s)
        try:
            head = first + self._receive(HEAD.size - len(first), deadline_s) if first else b""
            if not head:
                raise ChannelClosed
            header_size, body_size, where = HEAD.unpack(head)
            if header_size > MAX_HEADER_BYTES or body_size > MAX_BODY_BYTES:
                raise GarbledFrame(f"a header of {header_size} bytes, a body of {body_size}")
            text = self._receive(header_size, deadline_s)
            body = (
                map_shared_memory(descriptors, body_size) if where == SHARED else self._receive(body_size, deadline_s)
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        try:
            header = json.loads(text.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise GarbledFrame(str(error)) from None
        if not isinstance(header, dict):
            raise GarbledFrame("the header is not an object")
        return header, body

    def close(self) -> None:
        self._socket.close()

    def _send_shared(self, text: bytes, body: bytes, deadline_s: float | None) -> None:
        descriptor = os.memfd_create("muster-snapshot")
        try:
            view = memoryview(body)
            while view:
                view = view[os.write(descriptor, view) :]
            head = HEAD.pack(len(text), len(body), SHARED)
            sent = self._wait(lambda: socket.send_fds(self._socket, [head], [descriptor]), deadline_s)
        finally:
            os.close(descriptor)
        self._send_all(head[sent:] + text, deadline_s)

    def _send_all(self, data: bytes, deadline_s: float | None) -> None:
        view = memoryview(data)
        while view:
            view = view[self._wait(lambda left=view: self._socket.send(left), deadline_s) :]  # type: ignore[misc]

    def _receive(self, size: int, deadline_s: float | None) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            wanted = min(size - len(parts), CHUNK_BYTES)
            part = self._wait(lambda size=wanted: self._socket.recv(size), deadline_s)  # type: ignore[misc]
            if not part:
                raise ChannelClosed
            parts += part
        return bytes(parts)

    def _wait(self, call: Callable[[], Any], deadline_s: float | None) -> Any:
        if deadline_s is not None:
            left = deadline_s - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
        else:
            self._socket.settimeout(None)
        try:
            return call()
        except (BrokenPipeError, ConnectionResetError):
            raise ChannelClosed from None


def map_shared_memory(descriptors: list[int], size: int) -> bytes | mmap.mmap:
    if not descriptors or os.fstat(descriptors[0]).st_size < size:
        raise GarbledFrame(f"no shared memory of {size} bytes came along")
    return mmap.mmap(descriptors[0], size, prot=mmap.PROT_READ) if size else b""


# The caller's side
# -----------------

START_DEADLINE_MS = 15_000
"""For Python to start and the plugin's module to be imported; a plan's deadline counts from then on."""

MODULE = "muster.assignors.plugin_worker"
LAST_WORD_TRIES, LAST_WORD_PAUSE_S = 50, 0.01
"""The channel of a process that exits is closed a little before the process is over."""

LAST_WORD_MS = 500
"""So long past its deadline a process has to say where it is, before it is killed."""

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Libraries of linear algebra start a thread, with a stack each, for every core when they are imported."""


class PluginOverran(AssignorError):
    """A plugin that was not done by its deadline."""


def describe_overrun(late: str, place: object) -> str:
    return f"{late}; at the deadline it was at {place}" if place else late


class PluginEnded(AssignorError):
    """A plugin whose process ended before it had answered."""


class PluginProcess:
    """One process with one plugin in it; whoever has it asks one question at a time.

    Nothing is forked from a caller with threads: it is a fresh Python, found by its path, in a session of its own.
    """

    def __init__(self, assignor: Assignor, max_memory_bytes: int, show_output: bool, nice: int = 0) -> None:
        """Raises AssignorError when the plugin cannot be sent, or cannot be loaded there."""
        self.name = assignor.name
        self._max_memory_bytes = max_memory_bytes
        blob = pack_assignor(assignor)
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(theirs.fileno()), str(lifeline)],
                pass_fds=[theirs.fileno(), lifeline],
                stdin=subprocess.DEVNULL,
                stdout=2 if show_output else subprocess.DEVNULL,
                stderr=None if show_output else subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )
        os.close(lifeline)
        if nice:
            with suppress(OSError):  # it is gone already: the first question says so
                os.setpriority(os.PRIO_PROCESS, self._child.pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)
        self._channel = Channel(ours)
        self._ending = threading.Lock()
        hello = {"path": sys.path, "max_memory_bytes": max_memory_bytes}
        try:
            self.exchange_message(
                hello, blob, START_DEADLINE_MS, "was not loaded after {deadline_ms} ms; mend what its module does"
            )
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def exchange_message(
        self, header: dict[str, Any], body: bytes, deadline_ms: int, late: str
    ) -> tuple[dict[str, Any], Any]:
        """The answer's header and body. Any failure but the plugin's own error ends the process.

        Raises PluginOverran (with `late`, in which {deadline_ms} is filled in), PluginEnded, and AssignorError with
        what the plugin did wrong.
        """
        until_s = time.monotonic() + (deadline_ms + LAST_WORD_MS) / 1000
        try:
            self._channel.send({**header, "deadline_ms": deadline_ms}, body, until_s)
            answer, plan = self._channel.receive(until_s)
        except TimeoutError:
            self.kill()
            raise PluginOverran(self.name, late.format(deadline_ms=deadline_ms)) from None
        except ChannelClosed:
            raise PluginEnded(self.name, f"ended its process before it had answered ({self._last_word()})") from None
        except (GarbledFrame, OSError) as error:
            self.kill()
            raise PluginEnded(self.name, f"its process sent something unreadable ({error})") from None
        except BaseException:
            self.kill()  # the question is given up, and its answer must not be taken for the next one's
            raise
        if "overran" in answer:
            self.kill()
            raise PluginOverran(self.name, describe_overrun(late.format(deadline_ms=deadline_ms), answer["overran"]))
        if "error" in answer:
            self._failed(answer)
        return answer, plan

    @property
    def alive(self) -> bool:
        return self._child.returncode is None

    def kill(self) -> None:
        """The process, and all that it has started and not put elsewhere, is gone when this returns."""
        with self._ending:
            if self._child.returncode is None:
                self._signal()
                self._child.wait()
                self._channel.close()
                os.close(self._lifeline)

    def stop(self) -> None:
        """As `kill`, for somebody else than who is asking it a question: that one gets PluginEnded, and clears up."""
        with self._ending:
            if self._child.returncode is None:
                self._signal()

    def _signal(self) -> None:
        # Not reaped yet: its number, which is the group's, cannot be anybody else's.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)

    def _failed(self, answer: dict[str, Any]) -> None:
        if answer.get("last"):
            self.kill()
        problem = str(answer["error"])
        if answer.get("memory"):
            problem = f"needed more memory than it may take ({self._max_memory_bytes} bytes beyond Python's own)"
        raise AssignorError(self.name, problem, str(answer.get("trace", "")))

    def _last_word(self) -> str:
        """How the process ended. One that only closed its end of the channel is killed."""
        for _ in range(LAST_WORD_TRIES):
            if os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
            time.sleep(LAST_WORD_PAUSE_S)
        self.kill()
        code = self._child.returncode
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def pack_assignor(assignor: Assignor) -> bytes:
    """How another Python makes the same assignor: by the place of its class, and what it holds."""
    try:
        blob = pickle.dumps(assignor)
    except Exception as error:
        raise unsendable_error(assignor, str(error)) from None
    if type(assignor).__module__ == "__main__":
        raise unsendable_error(assignor, "it is defined in the program that is being run")
    return blob


def unsendable_error(assignor: Assignor, why: str) -> AssignorError:
    return UnsendablePlugin(
        assignor.name,
        f"cannot be run in a process of its own: {why}; define its class at the top of a module that can be imported, "
        "and keep in it nothing that cannot be pickled",
    )


class UnsendablePlugin(AssignorError):
    """An assignor that no other process could make."""
