"""The gRPC side of transactions without connection or clock, over the same parts as tests/support/kafka/door.py."""

from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

from muster.coordinator.edge.request_limits import TRANSACTION_KEY
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.transactions import TransactionGate
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb
from muster.coordinator.server.backend.assignor_inputs import partition_counts
from muster.coordinator.server.services.group_coordinator import ClientEndpoint, GroupCoordinator
from muster.coordinator.server.transactions.transaction_rpcs import TransactionRpcs
from muster.coordinator.server.transactions.transactional_requests import RpcGroupTransactions, RpcRecordTransactions
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb
from muster.storage.service.broker_service import BrokerService
from tests.support.group_service import group_service_context
from tests.support.kafka.door import NODE_ID, Door
from tests.unit.storage.logs import batch

CALL: Final = cast(Any, SimpleNamespace(peer_host="10.0.0.7", client_software="tests 1.0"))


class TransactionalEdge:
    """The three services of a node that coordinates transactional ids."""

    def __init__(self, door: Door) -> None:
        assert door.transactions is not None, "give `play` the settings of a node that coordinates them"
        service, groups = door.transactions, GroupRequests(door.driver, 1)
        gate = TransactionGate(door.broker, service, verifies=True)
        self.rpcs = TransactionRpcs(service, service.history, node_id=NODE_ID)
        self.groups = GroupCoordinator(
            group_service_context(
                driver=door.driver,
                endpoint=lambda: ClientEndpoint(NODE_ID, "muster.example", 9290),
                partitions=partial(partition_counts, door.broker),
                transactions=RpcGroupTransactions(service, groups, gate),
            )
        )
        self.broker = BrokerService(
            door.requests,
            node_id=NODE_ID,
            advertised=lambda: ("muster.example", 9290),
            transactions=RpcRecordTransactions(gate, door.requests, door.driver, max_timeout_ms=900_000),
        )

    async def init(self, name: str = "app", timeout_ms: int = 60_000, **more: Any) -> pb.InitProducerIdResponse:
        asked = pb.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **more)
        return await self.rpcs.init_producer_id(asked, CALL)

    async def begin(self, name: str = "app") -> tuple[int, int]:
        """Producer id and epoch of a new instance."""
        given = await self.init(name)
        assert given.error_code == 0, given.error_message
        return given.producer_id, given.producer_epoch

    async def send(
        self,
        who: tuple[int, int],
        *texts: bytes,
        name: str = "app",
        first: int = 0,
        places: tuple[tuple[str, int], ...] = (("t", 0),),
        transactional: bool = True,
    ) -> list[int]:
        """The codes of one batch for each place."""
        data = batch(
            *texts, producer_id=who[0], producer_epoch=who[1], base_sequence=first, transactional=transactional
        )
        answer = await self.broker.produce(produce_request(name, dict.fromkeys(places, data)), CALL)
        return [part.error_code for topic in answer.responses for part in topic.partition_responses]

    async def end(self, who: tuple[int, int], *, commit: bool = True, name: str = "app") -> tuple[int, tuple[int, int]]:
        asked = pb.EndTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], commit=commit)
        answer = await self.rpcs.end_txn(asked, CALL)
        return answer.error_code, (answer.producer_id, answer.producer_epoch)

    async def describe(self, *names: str) -> list[pb.DescribedTransaction]:
        asked = pb.DescribeTransactionsRequest(transactional_ids=names)
        return list((await self.rpcs.describe_transactions(asked, CALL)).transactions)

    async def settled(self, name: str = "app") -> str:
        """The state that the id is in once no transaction of it is under way."""
        while (state := (await self.describe(name))[0].state).startswith("Prepare"):
            pass
        return state

    async def find_all(self, **filters: Any) -> pb.ListTransactionsResponse:
        return await self.rpcs.list_transactions(pb.ListTransactionsRequest(**filters), CALL)

    async def commit_offsets(
        self, who: tuple[int, int], *places: tuple[str, int], name: str = "app", group: str = "g", **more: Any
    ) -> group_pb.TxnOffsetCommitResponse:
        topics = [
            group_pb.OffsetCommitTopic(
                name=topic, partitions=[group_pb.OffsetCommitPartition(partition_index=number, committed_offset=7)]
            )
            for topic, number in places
        ]
        asked = group_pb.TxnOffsetCommitRequest(
            transactional_id=name, group_id=group, producer_id=who[0], producer_epoch=who[1], topics=topics, **more
        )
        return await self.groups.txn_offset_commit(asked, CALL)

    async def find(self, key: str = "app", key_type: str = TRANSACTION_KEY) -> group_pb.FindCoordinatorResponse:
        return await self.groups.find_coordinator(group_pb.FindCoordinatorRequest(key=key, key_type=key_type), CALL)

    async def markers(
        self, who: tuple[int, int], *places: tuple[str, int], coordinator_epoch: int = 0
    ) -> list[tuple[int, str]]:
        """Code and sentence of each."""
        topics = [broker_pb.WriteTxnMarkersTopic(name=topic, partition_indexes=[number]) for topic, number in places]
        asked = broker_pb.WriteTxnMarkersRequest(
            producer_id=who[0], producer_epoch=who[1], coordinator_epoch=coordinator_epoch, topics=topics
        )
        answer = await self.broker.write_txn_markers(asked, CALL)
        return [(part.error_code, part.error_message) for topic in answer.topics for part in topic.partitions]


def produce_request(name: str, data: dict[tuple[str, int], bytes], acks: int = -1) -> broker_pb.ProduceRequest:
    topics = [
        broker_pb.ProduceTopic(name=topic, partition_data=[broker_pb.ProducePartition(index=number, records=records)])
        for (topic, number), records in data.items()
    ]
    return broker_pb.ProduceRequest(acks=acks, topic_data=topics, transactional_id=name)
