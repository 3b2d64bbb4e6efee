"""The log's handlers without connection or clock: what a client's bytes lead to, and the bytes it gets back."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from coordinator.kafka.codec import decode_frame, decoder_of, encode, struct
from coordinator.kafka.dispatch import KafkaCall, Peer, Promised, Written, snake_case
from coordinator.kafka.log_handlers import LogHandlers
from coordinator.kafka.log_metadata import Endpoint
from storage.broker import Broker
from storage.config import LogSettings
from storage.requests import LogRequests
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0

NODE_ID = 7
PATIENCE_S = 20


class Door:
    """Asks the handlers as a connection does: each request and each answer goes through its bytes."""

    def __init__(self, broker: Broker, *, auto_create: bool, elsewhere: frozenset[str]) -> None:
        self.broker = broker
        self.requests = LogRequests(broker, clock_ms=lambda: T0)
        endpoint = Endpoint(NODE_ID, "muster.example", 9092)
        self.handlers = LogHandlers(
            self.requests,
            lambda: endpoint,
            node_id=NODE_ID,
            auto_create=auto_create,
            elsewhere=elsewhere.__contains__,
        )
        self._peer = Peer("127.0.0.1", asyncio.get_running_loop().create_future())

    async def ask(self, api: str, version: int, **fields: object) -> Any:
        """The answer as a client decodes it; None for no answer at all."""
        data = b"".join(encode(f"{api}Request", version, struct(f"{api}Request")(**fields)))
        name = snake_case(api)
        read = getattr(self.handlers, f"{name}_reader", partial(decoder_of, f"{api}Request"))(version)
        request, _ = read(data, 0)
        answer = await self._answer(name, request, KafkaCall(version, "tests", self._peer))
        if answer is None:
            return None
        body = answer.body if isinstance(answer, Written) else encode(f"{api}Response", version, answer)
        return decode_frame(f"{api}Response", version, b"".join(body))

    async def _answer(self, name: str, request: Any, call: KafkaCall) -> Any:
        if not hasattr(self.handlers, f"{name}_now"):
            return await getattr(self.handlers, name)(request, call)
        answer = getattr(self.handlers, f"{name}_now")(request, call)
        if isinstance(answer, Promised):
            await asyncio.wait([answer.future])
            return answer.respond()
        return await getattr(self.handlers, name)(request, call) if answer is None else answer


def play(
    story: Callable[[Door], Awaitable[None]],
    disk: MemoryFiles | None = None,
    *,
    auto_create: bool = True,
    elsewhere: frozenset[str] = frozenset(),
    **settings: object,
) -> None:
    """Run the story against a node with topic `t` of three partitions; other nodes have the topics `elsewhere`."""
    told = {name.replace("__", "."): str(value) for name, value in settings.items()}
    broker = Broker("/data", LogSettings.from_properties(told), disk or MemoryFiles(), clock_ms=lambda: T0)
    broker.create_topic("t", 3)
    broker.create_topic("__consumer_offsets", 1, internal=True)

    async def run() -> None:
        door = Door(broker, auto_create=auto_create, elsewhere=elsewhere)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await story(door)
        finally:
            await door.requests.close()

    asyncio.run(run())
    broker.close()


def made(path: str, **fields: object) -> Any:
    return struct(path)(**fields)
