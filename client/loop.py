"""The one background event loop that all synchronous clients of a process share.

One loop, because gRPC's asyncio layer misbehaves with several in one process. Its thread is a daemon; clients that
are closed leave nothing on it.
"""

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from muster.client.errors import IllegalState, WrongProcess

T = TypeVar("T")
END_PATIENCE_S = 1.0


class BackgroundLoop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="muster-client", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _end(self) -> None:
        """At the end of the process: what clients left running because nobody closed them ends without noise."""
        if os.getpid() != self.pid or not self._thread.is_alive():
            return

        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self.loop)
        self._thread.join(END_PATIENCE_S)

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if os.getpid() != self.pid:
            work.close()
            raise WrongProcess(
                f"this client was created in process {self.pid} and is used in {os.getpid()}; "
                "gRPC does not survive a fork: create the client in the process that uses it"
            )
        if threading.current_thread() is self._thread:
            work.close()
            raise IllegalState("a synchronous client was called on the client's own loop; use muster.aio")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work`. Interrupted by Ctrl-C, it is cancelled."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_shared: BackgroundLoop | None = None
_lock = threading.Lock()


def shared_loop() -> BackgroundLoop:
    """The loop of this process; a forked child gets one of its own."""
    global _shared
    with _lock:
        if _shared is None or _shared.pid != os.getpid():
            _shared = BackgroundLoop()
        return _shared
