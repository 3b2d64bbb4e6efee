"""A transaction that is over when its positions come: asked request by request, for no library does it at will."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from tests.support.kafka.client import KafkaClient
from tests.support.kafka_backend.proxy_nodes import ProxyNodes
from tests.support.pace import AGAIN_S, Patience

PATIENCE_S: Final = 60.0
AGAIN: Final = {3, 14, 15, 16, 51}
"""The topic is not known yet; the coordinator loads, is not there, is another one; what was before is not over."""
TIMEOUT_MS: Final = 900_000
"""The longest that a broker lets a transaction have by itself: nothing here ends by it."""
UNSTABLE: Final = 88


class LateWrites:
    """Of one group, without members, and of one producer with the id `GROUP.app`."""

    def __init__(self, nodes: ProxyNodes, group: str, topic: str) -> None:
        self._nodes, self._group, self._topic = nodes, group, topic
        self._producer: dict[str, Any] = {}

    async def begin(self) -> None:
        name = f"{self._group}.app"
        told = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1}
        made = await self._asked(self._broker, "InitProducerId", 3, **told)
        self._producer = {
            "transactional_id": name,
            "producer_id": made.producer_id,
            "producer_epoch": made.producer_epoch,
        }

    async def put_in(self) -> None:
        """The group's positions are a part of the transaction from now on."""
        await self._asked(self._broker, "AddOffsetsToTxn", 3, **self._producer, group_id=self._group)

    async def abort(self) -> None:
        """Until its marker is in the log of the group's shard."""
        await self._asked(self._broker, "EndTxn", 3, **self._producer, committed=False)
        patience = Patience(PATIENCE_S)
        while (await self.position())[0]:
            assert patience.lasts(), "the marker does not come"
            await asyncio.sleep(AGAIN_S)

    async def commit(self, offset: int) -> int:
        """In the transaction, whether or not it is there any more: Kafka's code."""
        place = struct("TxnOffsetCommitRequest.topics.partitions")(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1
        )
        topic = struct("TxnOffsetCommitRequest.topics")(name=self._topic, partitions=[place])
        told = self._producer | {
            "group_id": self._group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
        }
        answer = await self._asked(self._owner, "TxnOffsetCommit", 3, **told, topics=[topic])
        return int(answer.topics[0].partitions[0].error_code)

    async def position(self) -> tuple[int, int]:
        """What who wants stable ones is told: code and offset."""
        asked = struct("OffsetFetchRequest.topics")(name=self._topic, partition_indexes=[0])
        async with KafkaClient(*await self._owner()) as client:
            answer = await client.ask("OffsetFetch", 7, group_id=self._group, topics=[asked], require_stable=True)
        [told] = answer.topics[0].partitions
        return int(told.error_code), int(told.committed_offset)

    async def _broker(self) -> tuple[str, int]:
        return "127.0.0.1", int(self._nodes.nodes[1].settings["engine.kafka.broker.ports"])

    async def _owner(self) -> tuple[str, int]:
        async with KafkaClient(*self._at(1)) as client:
            found = await client.ask("FindCoordinator", 2, key=self._group, key_type=0)
        return found.host, found.port

    def _at(self, node: int) -> tuple[str, int]:
        host, _, port = self._nodes.nodes[node].kafka_address.rpartition(":")
        return host, int(port)

    async def _asked(
        self, where: Callable[[], Awaitable[tuple[str, int]]], name: str, version: int, **told: Any
    ) -> Any:
        patience = Patience(PATIENCE_S)
        while True:
            host, port = await where()
            async with KafkaClient(host, port) as client:
                answer = await client.ask(name, version, **told)
            code = answer.topics[0].partitions[0].error_code if name == "TxnOffsetCommit" else answer.error_code
            if code not in AGAIN:
                assert name == "TxnOffsetCommit" or code == 0, f"{name} was answered with {code}"
                return answer
            assert patience.lasts(), f"{name} is answered with {code} again and again"
            await asyncio.sleep(AGAIN_S)
