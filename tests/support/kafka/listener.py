"""A listener on loopback with handlers that a test holds in its hands."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.connections.listener import ConnectionListener, ListenerLimits
from muster.coordinator.kafka.connections.received_requests import ConnectionLimits
from muster.coordinator.kafka.connections.sasl_login import LoginService, SaslConnection
from muster.coordinator.kafka.dispatch import Dispatcher, KafkaCall, snake_case
from muster.coordinator.kafka.protocol import APIS, Api
from tests.support.kafka.client import KafkaClient

CONNECTION = ConnectionLimits(
    max_frame=1 << 20, max_in_flight=100, max_in_flight_bytes=1 << 20, max_unsent_bytes=1 << 16, max_idle_ms=60_000
)
LIMITS = ListenerLimits(max_connections=100, max_connections_per_host=100, connection=CONNECTION)


class HeldHandlers:
    """Each request waits until the test answers or fails it; the order in which they began is kept."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, Any, KafkaCall]] = []
        self.cancelled: list[str] = []
        self._answers: list[asyncio.Future[Any]] = []
        self._changed = asyncio.Condition()

    def __getattr__(self, name: str) -> Any:
        if name not in {snake_case(api.name) for api in APIS}:
            raise AttributeError(name)

        async def handler(request: Any, call: KafkaCall) -> Any:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.begun.append((name, request, call))
            self._answers.append(answer)
            await self._tell()
            try:
                return await answer
            except asyncio.CancelledError:
                self.cancelled.append(name)
                await self._tell()
                raise

        return handler

    async def until_begun(self, count: int) -> None:
        await self._until(lambda: len(self.begun) >= count)

    async def until_cancelled(self, count: int) -> None:
        await self._until(lambda: len(self.cancelled) >= count)

    def answer(self, index: int, **fields: object) -> None:
        """Answer the request that began as number `index`."""
        name = "".join(part.title() for part in self.begun[index][0].split("_"))
        self._answers[index].set_result(struct(f"{name}Response")(**fields))

    def answer_nothing(self, index: int) -> None:
        self._answers[index].set_result(None)

    def fail(self, index: int, error: Exception) -> None:
        self._answers[index].set_exception(error)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(condition)


@asynccontextmanager
async def listening(
    handlers: object,
    limits: ListenerLimits = LIMITS,
    desk: LoginService | None = None,
    apis: Sequence[Api] = APIS,
) -> AsyncIterator[tuple[ConnectionListener, int]]:
    """A listener that serves `handlers`, to those who have logged in at the desk, if there is one; and its port."""
    listener = ConnectionListener(limits)
    port = listener.bind("127.0.0.1", 0)
    await listener.start(
        Dispatcher((handlers,), apis=apis), partial(SaslConnection, desk) if desk is not None else None
    )
    try:
        yield listener, port
    finally:
        await listener.close(0.1)


def client(port: int) -> KafkaClient:
    return KafkaClient("127.0.0.1", port)
