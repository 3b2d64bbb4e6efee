"""What is performed alike for every kind of member: calls by their tokens, one timer, callbacks in order."""

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from muster.client.calls.transport import now_ms
from muster.client.errors import AuthenticationError, AuthorizationError, Refused, refusal
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.membership.seam import Callback, Wake
from muster.coordinator.errors import error_code_of

log = logging.getLogger("muster.client")

BACKOFF_JITTER = 0.2

EventT = TypeVar("EventT")


class DriverBase(ABC, Generic[EventT]):
    """One member on the running loop. `wake` is called whenever its owner should look."""

    def __init__(self, group_id: str, wake: Wake) -> None:
        self.callbacks: deque[Callback] = deque()
        self.failure: Exception | None = None
        self.trouble: Exception | None = None
        """To be raised once; the member goes on trying."""
        self._unwelcome: Exception | None = None
        """Why a call of this member is not for it to make: it fails by that, and not by its translation to a code."""
        self._group_id = group_id
        self._wake_owner = wake
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def send(self, event: EventT | ev.CommonEvent | ev.Revoked | ev.RequestFailed) -> None:
        """Step the machine and start what it asks for."""

    def refused(self, error: Refused, generation: int) -> None:
        """A commit made under `generation` was refused: the group may have gone on without this member."""
        self.send(ev.CommitRefused(error_code_of(error.code), error.message, generation))

    def done(self, callback: Callback) -> None:
        """The application has been told."""
        if callback.token is not None:
            self.send(ev.Revoked(callback.token))

    async def _stop(self, *more: asyncio.Task[None] | None) -> None:
        """End the timer, the calls under way, and `more`."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks.values(), *(task for task in more if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake_at(self, at_ms: int, *, spread: bool = False) -> None:
        """Replaces an earlier wish. With `spread`, a whole group does not come back in one burst (KIP-580)."""
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0, at_ms - now_ms())
        if spread:
            delay_ms = int(delay_ms * (1 + random.uniform(0, BACKOFF_JITTER)))
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self.send, ev.TimerExpired())

    def _ask(self, token: int, work: Coroutine[Any, Any, EventT]) -> None:
        """Start a call; its answer, or why there is none, goes to the machine."""

        async def asking() -> None:
            try:
                answer: EventT | ev.RequestFailed = await work
            except Exception as error:
                if isinstance(error, AuthenticationError | AuthorizationError):
                    self._unwelcome = error
                failed = self._failed(token, error)
                if failed is None:
                    self._crashed(error)
                    return
                answer = failed
            self._tasks.pop(token, None)
            self.send(answer)
            self._answered(answer)

        task = self._tasks[token] = asyncio.create_task(asking())
        # A task that is cancelled before its first step would leave the call behind, never begun.
        task.add_done_callback(lambda _: work.close())

    def _fail(self, action: act.Fail) -> None:
        self.failure = self._unwelcome or refusal(action.code, action.code.name, action.message, self._group_id)

    def _abandon(self, token: int) -> None:
        if task := self._tasks.pop(token, None):
            task.cancel()

    @abstractmethod
    def _failed(self, token: int, error: Exception) -> ev.RequestFailed | None:
        """What the machine hears of a call that failed. None is for a bug."""

    def _answered(self, answer: EventT | ev.RequestFailed) -> None:
        """The machine has heard the answer."""

    def _crashed(self, error: Exception) -> None:
        """A bug must not leave a member waiting for ever: whoever owns it is told."""
        log.exception("the member of group %r stopped working", self._group_id)
        self.failure = error
        self._wake_owner()
