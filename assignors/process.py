"""The caller's side of one plugin's process: started, asked, killed."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from muster.assignors.api import Assignor, AssignorError
from muster.assignors.channel import Channel, ChannelClosed, GarbledFrame

START_DEADLINE_MS = 15_000
"""For Python to start and the plugin's module to be imported; a plan's deadline counts from then on."""

MODULE = "muster.assignors.plugin_worker"
LAST_WORD_TRIES, LAST_WORD_PAUSE_S = 50, 0.01
"""The channel of a process that exits is closed a little before the process is over."""

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Libraries of linear algebra start a thread, with a stack each, for every core when they are imported."""


class PluginOverran(AssignorError):
    """A plugin that was not done by its deadline."""


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
            self.ask(hello, blob, START_DEADLINE_MS, "was not loaded after {deadline_ms} ms; mend what its module does")
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(self, header: dict[str, Any], body: bytes, deadline_ms: int, late: str) -> tuple[dict[str, Any], Any]:
        """The answer's header and body. Any failure but the plugin's own error ends the process.

        Raises Overran (with `late`, in which {deadline_ms} is filled in), Ended, and AssignorError with what the plugin
        did wrong.
        """
        until_s = time.monotonic() + deadline_ms / 1000
        try:
            self._channel.send(header, body, until_s)
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
        """As `kill`, for somebody else than who is asking it a question: that one gets Ended, and clears up."""
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
        raise AssignorError(self.name, problem)

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
