"""How handlers ask the groups: the driver they are given, and what becomes of those who cannot be asked."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from coordinator.core import effects, events
from coordinator.errors import CoordinatorError, Draining, ErrorCode, Overloaded
from coordinator.kafka.dispatch import Later
from coordinator.runtime.router import partition_for

Wanted = TypeVar("Wanted")

MAX_NAME_CHARS = 4_096
"""Longest id or name. In UTF-8, with a uuid appended, it still fits the 32,767 bytes of a stored string."""

MAX_GROUPS = 10_000
"""Groups that one request may ask about."""


class GroupDriver(Protocol):
    """The engine's place on the event loop, as this edge sees it."""

    def next_id(self) -> int: ...

    async def ask(self, shard: int, event: events.Request, wanted: type[Wanted]) -> Wanted: ...

    async def ask_all(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Wanted]) -> list[Wanted]: ...

    def begin(self, shard: int, event: events.Request) -> "asyncio.Future[effects.Reply]": ...

    def beat(self, shard: int, group_id: str, member_id: str, generation: int) -> bool: ...


class Groups:
    """All groups of the node. Refusals of the node itself become replies that send the client back here later."""

    def __init__(self, driver: GroupDriver, shards: int) -> None:
        self.driver = driver
        self.shards = shards

    def shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self.shards)

    def next_id(self) -> int:
        return self.driver.next_id()

    async def ask(self, group_id: str, make: Callable[[], events.Request], wanted: type[Wanted]) -> Wanted:
        """The reply to the event that `make` makes, or one that tells why none could be had."""
        try:
            return await self.driver.ask(self.shard_of(group_id), make(), wanted)
        except (CoordinatorError, Overloaded, Draining) as refusal:
            return refused(refusal, wanted)

    def begin(
        self, group_id: str, make: Callable[[], events.Request], wanted: type[Wanted], answer: Callable[[Wanted], Any]
    ) -> Any:
        """What `answer` makes of the reply to a request that never parks: at once, or Later."""
        try:
            future = self.driver.begin(self.shard_of(group_id), make())
        except (CoordinatorError, Overloaded, Draining) as refusal:
            return answer(refused(refusal, wanted))

        def respond() -> Any:
            try:
                reply = future.result()
            except Draining as refusal:
                return answer(refused(refusal, wanted))
            assert isinstance(reply, wanted), f"expected {wanted.__name__}, not {type(reply).__name__}"
            return answer(reply)

        return Later(future, respond)

    async def ask_each(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Wanted]) -> list[Wanted]:
        """The replies to several events, asked in one turn."""
        try:
            return await self.driver.ask_all(questions, wanted)
        except (CoordinatorError, Overloaded, Draining) as refusal:
            return [refused(refusal, wanted)] * len(questions)


def refused(why: CoordinatorError | Overloaded | Draining, wanted: type[Wanted]) -> Wanted:
    """A reply without content. Every client of Kafka comes again after either code."""
    if isinstance(why, CoordinatorError):
        return wanted(code=why.code, message=why.message)  # type: ignore[call-arg]
    code = ErrorCode.NOT_COORDINATOR if isinstance(why, Draining) else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return wanted(code=code, message=str(why))  # type: ignore[call-arg]


def short(field: str, value: str) -> str:
    """The value, if it can be stored. Raises CoordinatorError."""
    if len(value) > MAX_NAME_CHARS:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            f"{field} has {len(value)} characters; at most {MAX_NAME_CHARS} are accepted",
        )
    return value


def short_or_none(field: str, value: str | None) -> str | None:
    return None if value is None else short(field, value)
