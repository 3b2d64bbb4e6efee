"""A bare client of Kafka's protocol: one connection, requests as they are written, answers in their order."""

import asyncio
from typing import Any, Self

from muster.coordinator.kafka.codec.codec import decode, decode_frame, encode, is_flexible, struct
from muster.coordinator.kafka.protocol import APIS, TRANSACTION_APIS
from muster.coordinator.kafka_backend.proxy.allowed_apis import TABLE
from muster.coordinator.replication.io.wire.node_api import NODE_APIS
from tests.support.pace import pace

KEYS = {api.name: api.key for api in (*(api for api, _ in TABLE.values()), *APIS, *TRANSACTION_APIS, *NODE_APIS)}
PATIENCE_S = 30.0


class KafkaClient:
    """Sends and receives on its own: a test decides what is in flight. Use it in an `async with`."""

    def __init__(self, host: str, port: int, client_id: str | None = "test") -> None:
        self._address = host, port
        self._client_id = client_id
        self._asked: list[tuple[str, int, int]] = []
        self._correlation = 0

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()

    def send(self, name: str, version: int, message: object = None, **fields: object) -> None:
        """Write one request; its answer is the next that `receive` returns."""
        self.send_with(b"\0", name, version, message or struct(f"{name}Request")(**fields))

    def send_with(self, tags: bytes, name: str, version: int, message: object) -> None:
        """The same with these tagged fields in its header, where it has any."""
        self._correlation += 1
        self._asked.append((name, version, self._correlation))
        self.writer.write(frame(name, version, self._correlation, message, self._client_id, tags))

    async def receive(self) -> Any:
        """The next answer; raises IncompleteReadError when the node closed the connection."""
        async with asyncio.timeout(PATIENCE_S * pace()):
            data = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))
        name, version, correlation = self._asked.pop(0)
        tagged = is_flexible(f"{name}Response", version) and name != "ApiVersions"
        header, begin = decode("ResponseHeader", int(tagged), data)
        assert header.correlation_id == correlation, "answers leave in the order of the requests"
        return decode_frame(f"{name}Response", version, data, begin)

    async def ask(self, name: str, version: int, **fields: object) -> Any:
        self.send(name, version, **fields)
        return await self.receive()

    async def closed_by_node(self) -> bool:
        """Wait for the end of the connection; whether nothing came before it."""
        async with asyncio.timeout(PATIENCE_S * pace()):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True


def frame(
    name: str,
    version: int,
    correlation: int,
    message: object,
    client_id: str | None = "test",
    tags: bytes = b"\0",
) -> bytes:
    """A request with its length and header."""
    header = struct("RequestHeader")(
        request_api_key=KEYS[name], request_api_version=version, correlation_id=correlation, client_id=client_id
    )
    flexible = is_flexible(f"{name}Request", version)
    head = b"".join(encode("RequestHeader", 1 + flexible, header))
    if flexible:
        head = head[:-1] + tags
    body = b"".join(encode(f"{name}Request", version, message))
    return (len(head) + len(body)).to_bytes(4, "big") + head + body
