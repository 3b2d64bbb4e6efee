"""FindCoordinator for groups of Muster's, and a broker's port's answer to group requests: NOT_COORDINATOR (KB-X2,
KB-X3).
"""

from collections.abc import Sequence
from typing import Any, Final, NoReturn, TypeVar

from muster.coordinator.core.model import events
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.group_requests import PendingGroupReply
from muster.coordinator.kafka.protocol import APIS, Api
from muster.coordinator.kafka_backend.proxy.allowed_apis import TABLE, RequestRoute
from muster.coordinator.kafka_backend.proxy.broker_addresses import ProxyAddresses

Wanted = TypeVar("Wanted")
BATCHED: Final = 4
GROUP_AUTHORIZATION_FAILED: Final = 30

READ_HERE: Final = frozenset(
    {"OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup",
     "DescribeGroups", "ListGroups", "DeleteGroups", "OffsetDelete", "ConsumerGroupHeartbeat",
     "ConsumerGroupDescribe", "AddOffsetsToTxn", "TxnOffsetCommit", "ApiVersions",
     "SaslHandshake", "SaslAuthenticate", "DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs",
     "ListConfigResources"}
)  # fmt: skip


SETTINGS: Final = frozenset({"DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "ListConfigResources"})


def served_apis(names: frozenset[str] = READ_HERE) -> tuple[Api, ...]:
    """Rows of the table, for a `Dispatcher`; how they hold up those behind them is as on the node's own log."""
    parked = {api.name: api for api in APIS}
    return tuple(
        parked.get(api.name, api) for api, way in TABLE.values() if api.name in names and way is not RequestRoute.PASS
    )


class ProxyCoordinators:
    """FindCoordinator of groups of ours, alike on every port."""

    def __init__(self, places: ProxyAddresses) -> None:
        self._places = places

    async def find_coordinator(self, request: Any, call: KafkaCall) -> Any:
        response = struct("FindCoordinatorResponse")
        if call.api_version < BATCHED:
            return response(**self._of(request.key))
        made = struct("FindCoordinatorResponse.coordinators")
        rows = [made(key=key, **self._of(key)) for key in dict.fromkeys(request.coordinator_keys)]
        return response(coordinators=rows)

    def _of(self, group: str) -> dict[str, Any]:
        node = self._places.coordinator(group)
        if node is None:
            why = f"nobody coordinates the shard of group {group!r} right now; ask again"
            return {"node_id": -1, "port": -1, "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "error_message": why}
        return {"node_id": node.node_id, "host": node.host, "port": node.port, "error_message": ""}


class NotCoordinatedHere:
    """In the place of a `GroupDriver`: on a broker's port no group of ours is coordinated."""

    def next_id(self) -> int:
        return 0

    async def ask_shard(self, shard: int, event: events.Request, wanted: type[Wanted]) -> Wanted:
        self._refuse()

    async def ask_all(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Wanted]) -> list[Wanted]:
        self._refuse()

    def begin_request(self, shard: int, event: events.Request, waiter: PendingGroupReply[Any]) -> None:
        self._refuse()

    def forget(self, shard: int, event: events.Request) -> None:
        """Nothing was begun."""

    def submit_event(self, shard: int, event: events.ConnectionClosed) -> None:
        """No group is to know."""

    def beat(self, shard: int, group_id: str, member_id: str, generation: int, rights: Rights) -> bool:
        return False

    def _refuse(self) -> NoReturn:
        raise CoordinatorError(ErrorCode.NOT_COORDINATOR, "this port stands for a broker of the upstream; ask anew")


class TransactionsRefused:
    """Offsets of groups of ours are in nobody's transaction (KB-E8). Clients turn the code into an error that names the
    group and lets the transaction be aborted."""

    async def add_offsets_to_txn(self, request: Any, call: KafkaCall) -> Any:
        return struct("AddOffsetsToTxnResponse")(error_code=GROUP_AUTHORIZATION_FAILED)

    async def txn_offset_commit(self, request: Any, call: KafkaCall) -> Any:
        made, row = struct("TxnOffsetCommitResponse.topics"), struct("TxnOffsetCommitResponse.topics.partitions")
        topics = [
            made(
                name=topic.name,
                partitions=[
                    row(partition_index=each.partition_index, error_code=GROUP_AUTHORIZATION_FAILED)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return struct("TxnOffsetCommitResponse")(topics=topics)
