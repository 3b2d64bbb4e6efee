"""A broker of somebody's Kafka on loopback, as small as a test wants it: what it is asked it answers by a table."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import decode, decode_frame, encode, is_flexible, struct
from muster.coordinator.kafka_backend.proxy.allowed_apis import TABLE
from muster.coordinator.kafka_backend.upstream.protocol import SUPPORTED_APIS

API_OF = {key: api.name for key, (api, _) in TABLE.items()} | {api.key: name for name, api in SUPPORTED_APIS.items()}
SILENCE = object()
"""The question is left without an answer."""
HANG_UP = object()


class UpstreamBroker:
    """`answers[api]` gets the request and gives the answer, its bytes, SILENCE or HANG_UP; it may be a coroutine.

    `offers`: the versions it tells; `tls`: the context it listens with.
    """

    def __init__(self, answers: Mapping[str, Callable[[Any], Any]] | None = None, *, tls: Any = None) -> None:
        self.answers = dict(answers or {})
        self.offers = {api.key: (api.first, api.last) for api in SUPPORTED_APIS.values()}
        self.asked: list[tuple[str, Any]] = []
        self.connections = 0
        self.address = Address("", 0)
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "UpstreamBroker":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def of(self, api: str) -> list[Any]:
        """What was asked of this kind."""
        return [request for name, request in self.asked if name == api]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                said = await self._answer(await reader.readexactly(size))
                if said is HANG_UP:
                    return
                if said is not SILENCE:
                    writer.write(len(said).to_bytes(4, "big") + said)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, frame: bytes) -> Any:
        api, version = API_OF[int.from_bytes(frame[:2], "big")], int.from_bytes(frame[2:4], "big")
        header, at = decode("RequestHeader", 1 + is_flexible(f"{api}Request", version), frame)
        request = decode_frame(f"{api}Request", version, frame, at)
        self.asked.append((api, request))
        if api == "ApiVersions" and api not in self.answers:
            said: Any = self._versions(version)
            version = 0 if said.error_code else version
        else:
            said = self.answers[api](request)
            if inspect.isawaitable(said):
                said = await said
        if said is SILENCE or said is HANG_UP or isinstance(said, bytes):
            return said
        head = header.correlation_id.to_bytes(4, "big")
        if api != "ApiVersions" and is_flexible(f"{api}Response", version):
            head += b"\0"
        return head + b"".join(encode(f"{api}Response", version, said))

    def _versions(self, version: int) -> Any:
        keys = [
            struct("ApiVersionsResponse.api_keys")(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in self.offers.items()
        ]
        code = 0 if version <= self.offers[18][1] else 35
        return struct("ApiVersionsResponse")(error_code=code, api_keys=keys)


def metadata(
    brokers: Mapping[int, Address], leaders: Mapping[str, Mapping[int, tuple[int, int]]], controller: int = 1
) -> Any:
    """A Metadata answer. leaders: by topic and partition, the leader and its epoch."""
    return struct("MetadataResponse")(
        cluster_id="upstream",
        controller_id=controller,
        brokers=[
            struct("MetadataResponse.brokers")(node_id=node, host=host, port=port)
            for node, (host, port) in brokers.items()
        ],
        topics=[
            struct("MetadataResponse.topics")(
                name=topic,
                topic_id=topic.encode().ljust(16, b"\0"),
                partitions=[
                    struct("MetadataResponse.topics.partitions")(
                        partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[1], isr_nodes=[1]
                    )
                    for index, (leader, epoch) in parts.items()
                ],
            )
            for topic, parts in leaders.items()
        ],
    )
