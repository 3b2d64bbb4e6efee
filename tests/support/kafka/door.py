"""The log's handlers without connection or clock: what a client's bytes lead to, and the bytes it gets back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from muster.coordinator.config import Settings
from muster.coordinator.core.model import events
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.edge.cluster_view import ClusterView
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import decode_frame, decoder_of, encode, struct
from muster.coordinator.kafka.dispatch import (
    ClientPeer,
    EncodedAnswer,
    FutureAnswer,
    KafkaCall,
    find_handler,
    next_connection_number,
    snake_case,
)
from muster.coordinator.kafka.handlers.classic_membership import MembershipHandlers
from muster.coordinator.kafka.handlers.configs import ConfigHandlers, GroupConfigs
from muster.coordinator.kafka.handlers.group_requests import GroupRequests, PendingGroupReply
from muster.coordinator.kafka.handlers.handlers import LogHandlers
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint
from muster.coordinator.kafka.handlers.partition_tools import SoleNodeHandlers
from muster.coordinator.kafka.handlers.transaction_markers import WriteTxnMarkersHandlers
from muster.coordinator.kafka.handlers.transactional_offsets import TransactionalOffsetHandlers
from muster.coordinator.kafka.protocol import transactional_apis
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.shards import refusal_of, refusal_while_loading
from muster.coordinator.server.backend.assignor_inputs import partition_counts
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.transactions.transaction_coordinator import TransactionCoordinator
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import LogRequests
from muster.storage.config import LogSettings
from tests.fakes.memory_files import MemoryFiles
from tests.support.pace import pace
from tests.unit.storage.logs import T0

NODE_ID = 7
APIS_BY_NAME = {api.name: api for api in transactional_apis(2)}
PATIENCE_S = 20


class OneShard:
    """The driver of a node with one shard, whose groups wait for nothing."""

    def __init__(self) -> None:
        self.shard = Shard(Limits(), 0)
        self._ids = count(1)
        self.loading = False
        self.failed = ""
        """Why the shard has failed."""

    def next_id(self) -> int:
        return next(self._ids)

    async def ask_shard(self, shard: int, event: events.Request, wanted: type[Any]) -> Any:
        (reply,) = await self.ask_all([(shard, event)], wanted)
        return reply

    async def ask_all(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Any]) -> list[Any]:
        if self.loading:
            return [refusal_while_loading(type(event)) for _, event in questions]
        if self.failed:
            return [refusal_of(type(event), ErrorCode.NOT_COORDINATOR, self.failed) for _, event in questions]
        return [self.step(event) for _, event in questions]

    def step(self, event: events.Request) -> Any:
        """Its reply, after all slices of what is long."""
        effects = self.shard.step(event, T0)
        while effects.rest is not None:
            effects = self.shard.step(effects.rest, T0)
        return effects.replies[0][1]

    def begin_request(self, shard: int, event: events.Request, waiter: PendingGroupReply[Any]) -> None:
        raise NotImplementedError("the log's handlers and those of settings begin nothing that waits")

    def forget(self, shard: int, event: events.Request) -> None:
        raise NotImplementedError("nothing waits")

    def beat(self, shard: int, group_id: str, member_id: str, generation: int, rights: Rights) -> bool:
        return False


class Door:
    """Asks the handlers as a connection does: each request and each answer goes through its bytes."""

    def __init__(
        self,
        broker: Broker,
        *,
        auto_create: bool,
        elsewhere: frozenset[str],
        cluster: ClusterView | None = None,
        transactions: Settings | None = None,
    ) -> None:
        self.broker = broker
        self.requests = LogRequests.standalone(broker, clock_ms=lambda: T0)
        self.driver = OneShard()
        self.transactions = (
            None if transactions is None else coordinator_of(transactions, broker, lambda: self.requests, self.driver)
        )
        endpoint = AdvertisedEndpoint(NODE_ID, "muster.example", 9092)
        records = LogHandlers(
            self.requests,
            lambda: endpoint,
            node_id=NODE_ID,
            auto_create=auto_create,
            directory=broker.data_dir,
            elsewhere=elsewhere.__contains__,
            cluster=cluster,
            transactions=self.transactions,
            verifies=transactions is None or transactions.transaction_partition_verification_enable,
        )
        configs = ConfigHandlers(self.requests, NODE_ID, GroupConfigs(GroupRequests(self.driver, 1), cluster), cluster)
        members = MembershipHandlers(GroupRequests(self.driver, 1), lambda: endpoint, self.transactions)
        self._everyone = [records, configs, SoleNodeHandlers(broker, NODE_ID), members]
        if records.producers is not None and records.gate is not None:
            groups = GroupRequests(self.driver, 1)
            counts = partial(partition_counts, broker)
            self._everyone.append(TransactionalOffsetHandlers(groups, records.producers, records.gate, counts))
            self._everyone.append(WriteTxnMarkersHandlers(self.requests, self.driver))
        self.peer = self.connect()

    def connect(self) -> ClientPeer:
        """A further connection, for `ask` to go by."""
        return ClientPeer("127.0.0.1", asyncio.get_running_loop().create_future())

    async def ask(self, api: str, version: int, /, by: ClientPeer | None = None, **fields: object) -> Any:
        """The answer as a client decodes it; None for no answer at all. by: the connection, if not the first."""
        data = b"".join(encode(f"{api}Request", version, struct(f"{api}Request")(**fields)))
        name = snake_case(api)
        handlers = find_handler(APIS_BY_NAME[api], self._everyone)
        read = getattr(handlers, f"{name}_reader", partial(decoder_of, f"{api}Request"))(version)
        request, _ = read(data, 0)
        answer = await self._answer(handlers, name, request, KafkaCall(version, "tests", by or self.peer))
        if answer is None:
            return None
        body = answer.body if isinstance(answer, EncodedAnswer) else encode(f"{api}Response", version, answer)
        return decode_frame(f"{api}Response", version, b"".join(body))

    async def _answer(self, handlers: Any, name: str, request: Any, call: KafkaCall) -> Any:
        if not hasattr(handlers, f"{name}_now"):
            return await getattr(handlers, name)(request, call)
        answer = getattr(handlers, f"{name}_now")(request, call)
        if isinstance(answer, FutureAnswer):
            await asyncio.wait([answer.future])
            return answer.respond()
        return await getattr(handlers, name)(request, call) if answer is None else answer


def coordinator_of(
    settings: Settings, broker: Broker, requests: Callable[[], LogRequests], groups: OneShard
) -> TransactionCoordinator:
    return TransactionCoordinator(settings, broker, requests, groups, NodeClock(), next_connection_number, raise_bug)


def raise_bug(bug: BaseException) -> None:
    raise AssertionError("the coordinator of transactions cannot go on") from bug


def play(
    story: Callable[[Door], Awaitable[None]],
    disk: MemoryFiles | None = None,
    *,
    auto_create: bool = True,
    elsewhere: frozenset[str] = frozenset(),
    cluster: ClusterView | None = None,
    transactions: Settings | None = None,
    **settings: object,
) -> None:
    """Run the story against a node with topic `t` of three partitions; other nodes have the topics `elsewhere`.

    transactions: the settings of a node that coordinates transactional ids. A disk that has been played on is opened.
    """
    told = {name.replace("__", "."): str(value) for name, value in settings.items()}
    broker = Broker("/data", LogSettings.from_properties(told), disk or MemoryFiles(), clock_ms=lambda: T0)
    if "t" not in broker.topics():
        broker.create_topic("t", 3)
        broker.create_topic("__consumer_offsets", 1, internal=True)

    async def run() -> None:
        door = Door(broker, auto_create=auto_create, elsewhere=elsewhere, cluster=cluster, transactions=transactions)
        try:
            async with asyncio.timeout(PATIENCE_S * pace()):
                if door.transactions is not None:
                    await door.transactions.open(Conditions(lambda: T0))
                await story(door)
        finally:
            if door.transactions is not None:
                await door.transactions.close(PATIENCE_S)
            await door.requests.close()

    asyncio.run(run())
    broker.close()


def made(path: str, **fields: object) -> Any:
    return struct(path)(**fields)
