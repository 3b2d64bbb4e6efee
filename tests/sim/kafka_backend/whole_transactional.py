"""A client's producer over whole nodes: what asks is the real edge (`TransactionCommits`), what it asks the real
engine.
"""

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from muster.coordinator.core.model.events import TxnOffsetCommit
from muster.coordinator.core.model.types import CommittedOffset
from muster.coordinator.kafka_backend.shard_ownership.shard_log import TransactionalClient
from muster.coordinator.kafka_backend.transaction_requests import TransactionCommitResult, TransactionCommits
from muster.coordinator.runtime.shards import partition_for
from tests.sim.kafka_backend.transactional import Transactional
from tests.sim.replication.groups.coordinator import SHARDS

if TYPE_CHECKING:
    from tests.sim.kafka_backend.whole import WholeNode

TOPIC: Final = "work"


def group_of(shard: int) -> str:
    """A group that nobody is a member of, of that shard."""
    return next(name for number in count() if partition_for(name := f"txn-{number}", SHARDS) == shard)


class NodeGroups:
    """As `Groups` of Kafka's door, over one simulated node."""

    def __init__(self, node: "WholeNode") -> None:
        self._node = node

    def next_id(self) -> int:
        return self._node.next_request()

    def shard_of(self, group_id: str) -> int:
        return partition_for(group_id, SHARDS)

    async def ask_group(self, group_id: str, make: Callable[[], Any], wanted: type[Any]) -> Any:
        answer = self._node.loop.create_future()
        self._node.asks(make(), lambda reply: answer.done() or answer.set_result(reply))
        return await answer


class WholeTransactional(Transactional):
    """Its keys are partitions: `txn-1` is partition 1."""

    def _asks(self, node: Any, key: bytes, value: int, said: Callable[[int], None]) -> None:
        place = TOPIC, int(key.rpartition(b"-")[2])
        client = TransactionalClient(f"app-{self.producer.id}", self.producer)
        group = group_of(self.shard)

        async def commits() -> None:
            groups: Any = NodeGroups(node)
            event = TxnOffsetCommit(groups.next_id(), group, "", None, -1, {place: CommittedOffset(value)})
            committed: TransactionCommitResult = await TransactionCommits(groups, node.owning.transactions).commit(
                event, client
            )
            code = committed.partitions.get(place, committed.code)
            self.world.later(1, lambda: said(int(code)))

        node.run(lambda: node.loop.create_task(commits()) and None)

    def _plainly(self) -> None:
        """Members' commits are others' part."""
