"""What one node leads and copies, and how it takes a role up and lays it down: the ground of `Replicas`."""

from dataclasses import dataclass

from muster.coordinator.replication.protocol.copying import LeaderFetcher, ReplicaCopy, TruncatedRecords
from muster.coordinator.replication.protocol.facts import (
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    PartitionState,
    TopicPartition,
    halves_of,
    parse_min_isr,
    unit_of,
)
from muster.coordinator.replication.protocol.fetch_sessions import FollowerSessions, LedPartition
from muster.coordinator.replication.protocol.follower import Follower
from muster.coordinator.replication.protocol.hosting import HostedUnits
from muster.coordinator.replication.protocol.image import ClusterImage, PartitionView
from muster.coordinator.replication.protocol.leader import Leader, shared_peers
from muster.coordinator.replication.protocol.lease import FetchSource, Peer, SilencePromise
from muster.coordinator.replication.protocol.messages import ANSWER_BYTES, PART_BYTES
from muster.coordinator.replication.protocol.outages import LogOutage, LogOutages
from muster.coordinator.replication.protocol.ports import LogBroken, ReplicaLog, ReplicaLogs
from muster.coordinator.replication.protocol.progress import UnitLog
from muster.coordinator.replication.protocol.shelf import CopyRemoval
from muster.coordinator.replication.protocol.throttle import (
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_REPLICAS,
    ThrottleBucket,
    is_throttled_replica,
)

ROOM_TO_LEAD, ROOM_TO_WRITE = 4 << 10, 1 << 20
"""Bytes that a disk which was full has to take before its copies are used again. To lead takes little: the epoch is
written down with its first records (CL-L1)."""


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """What the node sets: `replica.lag.time.max.ms`, `replica.fetch.backoff.ms`, `min.insync.replicas` of topics that
    say nothing, `replica.fetch.max.bytes` and `replica.fetch.response.max.bytes`."""

    lag_time_ms: int = 10_000
    backoff_ms: int = 200
    min_isr: int = 2
    part_bytes: int = PART_BYTES
    answer_bytes: int = ANSWER_BYTES


class ReplicaRoles:
    """See `Replicas`, which says when a role is taken up or laid down."""

    def __init__(self, me: int, logs: ReplicaLogs, settings: ReplicaSettings, now_ms: int) -> None:
        self.me = me
        self._logs = logs
        self._settings = settings
        self._started_ms = now_ms
        self._hosting = HostedUnits(me)
        self._peers: dict[int, Peer] = {}
        self._image = ClusterImage()
        self._stirring: dict[TopicPartition, None] = {}
        self.leaders: dict[TopicPartition, Leader] = {}
        self.led: dict[TopicPartition, LedPartition] = {}
        self.copies: dict[TopicPartition, ReplicaCopy] = {}
        self.fetchers: dict[int, LeaderFetcher] = {}
        self.promises: dict[TopicPartition, SilencePromise] = {}
        """Of shards: what this node lets their leaders believe (CL-G5)."""
        self.moved: dict[TopicPartition, None] = {}
        self.gained: dict[TopicPartition, int] = {}
        self.lost: dict[TopicPartition, None] = {}
        self.resized: dict[TopicPartition, None] = {}
        """Units led here whose in-sync replicas, or the least of them, may be others now."""
        self.undone: list[TruncatedRecords] = []
        self.cut_off = False
        """This node may have been passed by wherever others are in sync (see `Leader.look_around`)."""
        self._outages = LogOutages()
        self.offline = self._outages.reasons
        self._shelf = CopyRemoval(logs, self._leave_topic)
        self.strays = self._shelf.strays
        self.serving = FollowerSessions(
            self.led, self.leader_of, self._peer, self._stirred, self.broke, self._leads_slowly
        )
        self.copying = ThrottleBucket()
        """What the fetches of copies that are to come slowly take from (CL-A9)."""

    @property
    def node_epoch(self) -> int:
        return self._peer(self.me).epoch

    def leader_of(self, place: TopicPartition) -> tuple[int, int]:
        """(leader, leader epoch) as the image has it; (NOBODY, NO_EPOCH) for what it does not know."""
        view = self._image.partition(place)
        return (NO_NODE_ID, NO_EPOCH) if view is None else (view.leader, view.leader_epoch)

    def _lead(self, unit: TopicPartition, state: PartitionState, replicas: tuple[int, ...], now_ms: int) -> None:
        self._stop_leading(unit)
        self._stop_copying(unit)
        try:
            logs = [self._open(half) for half in halves_of(unit)]
            for _, log in logs:
                log.lead(state.leader_epoch)
        except LogBroken as error:
            self._broke(unit, str(error))
            return
        self._outages.is_over(unit)
        leader = Leader(
            self._peer(self.me),
            unit,
            state,
            shared_peers(replicas, self._peers),
            [
                UnitLog(start=log.start, end=log.end, kept=log.kept, high_watermark=log.high_watermark)
                for _, log in logs
            ],
            min_isr=self._min_isr(unit),
            lag_time_ms=self._settings.lag_time_ms,
            now_ms=now_ms,
        )
        self.leaders[unit] = leader
        for number, (half, (topic_id, log)) in enumerate(zip(halves_of(unit), logs, strict=True)):
            self.led[half] = LedPartition(leader, number, log, topic_id)
            self.serving.happened(half)
            self.serving.expects(leader.in_sync.largest, half, now_ms)
        self.lost.pop(unit, None)
        self.gained[unit] = state.leader_epoch
        self._stirred(leader)

    def _follow(self, unit: TopicPartition, state: PartitionState) -> None:
        self._stop_leading(unit)
        fetcher = self._fetcher(state.leader)
        if (leader := self._image.nodes.get(state.leader)) is not None:
            fetcher.source.session_ms = max(fetcher.source.session_ms, leader.session_ms)
        for half in halves_of(unit):
            copy = self.copies.get(half)
            try:
                if copy is None or copy.follower.stopped:
                    self.copies[half] = self._copy(half, state)
                else:
                    self.fetchers[copy.follower.leader].drop(half)
                    copy.follower.learn(state.leader_epoch, state.leader, state.unclean_epoch)
            except LogBroken as error:
                self._broke(unit, str(error))
                return
            fetcher.add(half)
        self._outages.is_over(unit)
        if unit.topic == OFFSETS:
            self.promise(unit).follow(fetcher.source)

    def _copy(self, half: TopicPartition, state: PartitionState) -> ReplicaCopy:
        topic_id, log = self._open(half)
        follower = Follower(
            half,
            state.leader_epoch,
            state.leader,
            start=log.start,
            end=log.end,
            kept=log.kept,
            last_epoch=log.last_epoch,
            high_watermark=log.high_watermark,
            unclean_epoch=state.unclean_epoch,
        )
        return ReplicaCopy(follower, log, topic_id)

    def _stop_leading(self, unit: TopicPartition) -> None:
        leader = self.leaders.pop(unit, None)
        if leader is None:
            return
        leader.over = True
        for half in halves_of(unit):
            self.led.pop(half, None)
            self.moved[half] = None  # who is parked hears that it leads no more
            self.serving.happened(half)
        self.gained.pop(unit, None)
        self.lost[unit] = None

    def _stop_copying(self, unit: TopicPartition) -> None:
        for half in halves_of(unit):
            copy = self.copies.pop(half, None)
            if copy is not None:
                self.fetchers[copy.follower.leader].drop(half)
        if unit in self.promises:
            self.promises[unit].follow(None)

    def _leave(self, unit: TopicPartition) -> None:
        """Have no part in it any more; what is on the disk stays."""
        self._stop_leading(unit)
        self._stop_copying(unit)
        self._hosting.forget(unit)
        self._outages.is_over(unit)

    def _leave_topic(self, place: TopicPartition, topic_id: bytes) -> None:
        """As `_leave`, where what is done with it is about this topic, and not about a later one of the name."""
        used, offline = self.led.get(place) or self.copies.get(place), self.offline.get(place)
        if (used is not None and used.topic_id == topic_id) or (offline is not None and offline[0] == topic_id):
            self._leave(unit_of(place))

    def broke(self, place: TopicPartition, why: str) -> None:
        """A log could not be read or written."""
        self._broke(unit_of(place), why)

    def unwritable(self, place: TopicPartition, why: str) -> bool:
        """A log led here takes no records, for want of room or by a fault of the disk. Where another copy is
        in sync that one is to lead it, as if the log was broken, and True is returned; else it is read from here.

        This one is back when there is room, not before: where no disk has any, leaders would go round and round."""
        led = self.led.get(place)
        if led is None or len(led.leader.in_sync.committed) < 2:
            return False
        self._broke(unit_of(place), why, no_room=True)
        return True

    def _broke(self, unit: TopicPartition, why: str, *, stays: bool = False, no_room: bool = False) -> None:
        """A log failed (CL-F9): its unit goes offline here, and the controller is told with the next poll."""
        ids = {half: topic.topic_id for half in halves_of(unit) if (topic := self._image.topics.get(half.topic))}
        view = self._image.partition(unit)
        kept = {
            half: used.log.kept for half in halves_of(unit) if (used := self.led.get(half) or self.copies.get(half))
        }
        self._stop_leading(unit)
        self._stop_copying(unit)
        if view is not None and not (unit in self._outages and not kept):
            no_room = no_room or bool(self._logs.no_room(ROOM_TO_LEAD))
            self._outages.begins(unit, ids, why, LogOutage(kept, view.unclean_epoch if stays else None, no_room))

    def _stirred(self, leader: Leader) -> None:
        if leader.over:
            if self.leaders.get(leader.unit) is leader:
                self._hosting.shown(leader.unit, leader.seen_epoch)
                self._stop_leading(leader.unit)
            return
        if leader.moved:
            leader.moved = False
            for half, place in zip(leader.halves, halves_of(leader.unit), strict=True):
                log = self.led[place].log
                if half.high_watermark != log.high_watermark:
                    log.tell_high_watermark(half.high_watermark)
                    self.moved[place] = None
                    self.serving.happened(place)
        if leader.wishes:
            self._stirring[leader.unit] = None

    def _peer(self, node: int) -> Peer:
        peer = self._peers.get(node)
        if peer is None:
            peer = self._peers[node] = Peer(node)
        return peer

    def _fetcher(self, node: int) -> LeaderFetcher:
        if node not in self.fetchers:
            settings = self._settings
            self.fetchers[node] = LeaderFetcher(
                self.me,
                FetchSource(node),
                self.copies,
                settings.backoff_ms,
                throttle=self.copying,
                is_throttled=self._copies_slowly,
                part_bytes=settings.part_bytes,
                answer_bytes=settings.answer_bytes,
            )
        return self.fetchers[node]

    def _leads_slowly(self, place: TopicPartition) -> bool:
        """CL-A9: whether the topic lists this node's replica among those that leaders hold up for others."""
        topic = self._image.topics.get(place.topic)
        return topic is not None and is_throttled_replica(
            topic.configs.get(LEADER_THROTTLED_REPLICAS, ""), place, self.me
        )

    def _copies_slowly(self, place: TopicPartition) -> bool:
        """CL-A9: whether the topic lists this node's replica among those that hold themselves up; not one in sync."""
        topic, view = self._image.topics.get(place.topic), self._image.partition(place)
        if topic is None or view is None or self.me in view.isr:
            return False
        return is_throttled_replica(topic.configs.get(FOLLOWER_THROTTLED_REPLICAS, ""), place, self.me)

    def promise(self, unit: TopicPartition) -> SilencePromise:
        """What this node lets leaders of a shard believe (CL-G5)."""
        return self.promises.setdefault(unit, SilencePromise(self._started_ms))

    def _open(self, half: TopicPartition) -> tuple[bytes, ReplicaLog]:
        topic_id, unit = self._image.topics[half.topic].topic_id, unit_of(half)
        if unit not in self._outages:
            return topic_id, self._logs.open(half, topic_id)
        view = self._image.partition(unit)
        self._outages.may_open(unit, NO_EPOCH if view is None else view.unclean_epoch)
        if self._outages.wants_room(unit):
            # Where nobody leads it may be read from here at least, if it can be led: its epoch has to be written down.
            wanted = ROOM_TO_LEAD if view is None or view.leader == NO_NODE_ID else ROOM_TO_WRITE
            if why := self._logs.no_room(wanted):
                raise LogBroken(why)
        log = self._logs.reopen(half, topic_id)
        self._outages.must_be_whole(unit, half, log)
        return topic_id, log

    def _min_isr(self, unit: TopicPartition) -> int:
        return parse_min_isr(self._image.topics[unit.topic].configs, self._settings.min_isr)


def state_from_view(view: PartitionView) -> PartitionState:
    return PartitionState(
        leader=view.leader,
        leader_epoch=view.leader_epoch,
        isr=view.isr,
        elr=view.elr,
        partition_epoch=view.partition_epoch,
        unclean_epoch=view.unclean_epoch,
    )
