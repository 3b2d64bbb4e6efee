"""A unit that node 1 leads, for tests of the machines of `coordinator.replication.protocol`."""

from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, PartitionState, TopicPartition
from muster.coordinator.replication.protocol.leader import FetchDivergence, FetchRefusal, Leader, UnitLog
from muster.coordinator.replication.protocol.lease import Peer

UNIT = TopicPartition("orders", 3)
SHARD = TopicPartition("__consumer_offsets", 7)
EPOCH = 7
LAG_MS = 10_000


class Cluster:
    """Nodes 1 to 3 (node epochs 11 to 13) and the leader on node 1. `fetch` is a whole request of a node."""

    def __init__(
        self,
        isr: tuple[int, ...] = (1, 2, 3),
        *,
        unit: TopicPartition = UNIT,
        end: int = 0,
        start: int = 0,
        high_watermark: int = 0,
        min_isr: int = 2,
        halves: int = 1,
    ) -> None:
        self.peers = {node: Peer(node, 10 + node) for node in (1, 2, 3)}
        self.epochs: list[tuple[int, int]] = []
        state = PartitionState(leader=1, leader_epoch=EPOCH, isr=isr, partition_epoch=4)
        self.leader = Leader(
            self.peers[1],
            unit,
            state,
            tuple(self.peers.values()),
            [UnitLog(end=end, start=start, high_watermark=high_watermark) for _ in range(halves)],
            min_isr=min_isr,
            lag_time_ms=LAG_MS,
            now_ms=0,
        )

    def end_for_epoch(self, epoch: int) -> tuple[int, int]:
        known = [entry for entry in self.epochs if entry[0] <= epoch]
        return known[-1] if known else (-1, -1)

    def fetch(
        self,
        node: int,
        offset: int,
        now_ms: int = 0,
        *,
        half: int = 0,
        epoch: int = EPOCH,
        last_epoch: int = NO_EPOCH,
        node_epoch: int | None = None,
        start: int = 0,
    ) -> FetchRefusal | FetchDivergence | None:
        peer = self.peers[node]
        number = peer.asks(now_ms, anew=peer.asked == 0)
        by = peer.epoch if node_epoch is None else node_epoch
        answer = self.leader.fetched(half, peer, by, epoch, offset, last_epoch, start, self.end_for_epoch, now_ms)
        peer.answered(number, now_ms)
        return answer

    def write(self, end: int, now_ms: int = 0, half: int = 0) -> bool:
        self.leader.appended(half, end)
        return self.leader.kept(half, end, now_ms)

    def learns(self, isr: tuple[int, ...], partition_epoch: int, now_ms: int = 0) -> bool:
        state = PartitionState(leader=1, leader_epoch=EPOCH, isr=isr, partition_epoch=partition_epoch)
        return self.leader.learn(state, tuple(self.peers.values()), 2, now_ms)
