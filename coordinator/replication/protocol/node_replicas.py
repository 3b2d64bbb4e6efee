"""All replicas of one node: what it leads and copies, as the image changes, followers ask, logs grow and time passes.

Synchronous, like the engine of groups. The caller brings the logs (`ReplicaLog`), carries requests and answers,
flushes and looks at the clock; it decides nothing. `ReplicaRoles` takes up and lays down roles; `NodeReplicas` says
when.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from muster.coordinator.replication.protocol.cluster_metadata import (
    COORDINATED,
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    ClusterImage,
    ClusterNodeStatus,
    ImageChanges,
    PartitionState,
    PartitionView,
    TopicPartition,
    halves_of,
    parse_min_isr,
    unit_of,
)
from muster.coordinator.replication.protocol.fetch_sessions import FetchReply, FollowerSessions, LedPartition
from muster.coordinator.replication.protocol.follower import Follower, LeaderFetcher, ReplicaCopy, TruncatedRecords
from muster.coordinator.replication.protocol.hosted_copies import (
    SHOWN_PATIENCE_MS,
    BecomeFollower,
    BecomeIdle,
    BecomeLeader,
    CopyRemoval,
    HostedUnits,
    LogOutage,
    LogOutages,
)
from muster.coordinator.replication.protocol.leader import IsrAnswer, IsrProposal, Leader, UnitLog, shared_peers
from muster.coordinator.replication.protocol.lease import FetchSource, Peer, SilencePromise
from muster.coordinator.replication.protocol.replica_fetch import (
    ANSWER_BYTES,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_REPLICAS,
    NO_LIMIT,
    PART_BYTES,
    FetchAnswer,
    FetchRequest,
    LogBroken,
    LogCorrupt,
    ReplicaLog,
    ReplicaLogs,
    ThrottleBucket,
    is_throttled_replica,
)

# Roles: how one is taken up and laid down
# ----------------------------------------

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
        self._peers: dict[int, Peer] = {me: Peer(me)}
        self._own = self._peers[me]
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
        self._silenced_ms: dict[TopicPartition, int] = {}
        """Since when units that this node led wait for an epoch that somebody named."""
        self._outages = LogOutages()
        self.offline = self._outages.reasons
        self._shelf = CopyRemoval(logs, self._leave_topic)
        self.strays = self._shelf.strays
        self.serving = FollowerSessions(
            self.led, self.leader_of, self._peer, self._stirred, self._unreadable, self._leads_slowly
        )
        self.copying = ThrottleBucket()
        """What the fetches of copies that are to come slowly take from (CL-A9)."""

    @property
    def node_epoch(self) -> int:
        return self._own.epoch

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
            self._broke(unit, str(error), corrupt=corrupt_place(error))
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
                self._broke(unit, str(error), corrupt=corrupt_place(error))
                return
            fetcher.add(half)
        self._outages.is_over(unit)
        if unit.topic in COORDINATED:
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

    def _unreadable(self, place: TopicPartition, error: LogBroken) -> None:
        """A log that is led here could not be read for a follower."""
        if corrupt_place(error) is None:
            self._broke(unit_of(place), str(error))
        else:
            self.corrupt(place, str(error))

    def unwritable(self, place: TopicPartition, why: str) -> bool:
        """A log led here takes no records, for want of room or by a fault of the disk. Where another copy is
        in sync that one is to lead it, as if the log was broken, and True is returned; else it is read from here.

        This one is back when there is room, not before: where no disk has any, leaders would go round and round."""
        led = self.led.get(place)
        if led is None or len(led.leader.in_sync.committed) < 2:
            return False
        self._broke(unit_of(place), why, no_room=True)
        return True

    def corrupt(self, place: TopicPartition, why: str) -> bool:
        """Records of a log that is led here are not as they were written. Where another copy is in sync that one is to
        lead it, and True is returned; else what can be read is read from here.

        Where enough others are in sync this copy stays offline until it is made anew from its leader's. Else it is
        back as a follower's: so it counts as one of those that records wait for.
        """
        led = self.led.get(place)
        if led is None or len(led.leader.in_sync.committed) < 2:
            return False
        others = len(led.leader.in_sync.committed) - 1
        self._broke(unit_of(place), why, corrupt=place if others >= led.leader.in_sync.min_size else None)
        return True

    def corrupt_halves(self, unit: TopicPartition) -> frozenset[TopicPartition]:
        """Of a unit that is offline here: those with records that are not as they were written."""
        return self._outages.corrupt(unit)

    def _broke(
        self,
        unit: TopicPartition,
        why: str,
        *,
        stays: bool = False,
        no_room: bool = False,
        corrupt: TopicPartition | None = None,
    ) -> None:
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
        if corrupt is not None:
            self._outages.found_corrupt(corrupt, unit)

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
        led = view is not None and view.leader != NO_NODE_ID
        self._outages.may_open(unit, NO_EPOCH if view is None else view.unclean_epoch, led=led)
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


def corrupt_place(error: LogBroken) -> TopicPartition | None:
    return error.place if isinstance(error, LogCorrupt) else None


def state_from_view(view: PartitionView) -> PartitionState:
    return PartitionState(
        leader=view.leader,
        leader_epoch=view.leader_epoch,
        isr=view.isr,
        elr=view.elr,
        partition_epoch=view.partition_epoch,
        unclean_epoch=view.unclean_epoch,
    )


# What the node calls
# -------------------

__all__ = ["NodeReplicas", "ReplicaSettings"]


class NodeReplicas(ReplicaRoles):
    """The replicas of node `me`. Whoever performs it calls, in any order:

        learn(image, changes)              when the image has changed
        fetch(request, reply)              when a follower asks; wake() after anything that happened
        requests()                         for the fetches to send; answered() or failed() for each
        appended(place), flushed(places)   when a log has grown here, or is flushed
        begins(place)                      when one begins later than before; `check_replicas` finds it, too
        questions()                        for what to ask the controller; altered() for each
        look()                             every half of `replica.lag.time.max.ms`, or more often
        look_around()                      every quarter of a session or more often, and when ZooKeeper is reached again

    and looks at `moved` (partitions whose high watermark has moved), `gained` and `lost` (units that this node leads
    from now on, or no more), `resized`, `undone` (what unclean elections cost), `offline` and `strays` afterwards.
    """

    def registered(self, node_epoch: int) -> None:
        """This node has registered anew."""
        self._peer(self.me).epoch = node_epoch
        for fetcher in self.fetchers.values():
            fetcher.begin_anew()

    # The image.

    def learn(self, image: ClusterImage, changes: ImageChanges, now_ms: int) -> None:
        """The image has changed. Takes the steps that follow, unit by unit."""
        self.learn_units(self.begin_learning(image, changes), now_ms)

    def begin_learning(self, image: ClusterImage, changes: ImageChanges) -> list[TopicPartition]:
        """The first part of `learn`, for who takes the other in steps: the units that are to be given to `learn_units`,
        each once, before another image is begun."""
        self._image = image
        for node_id in changes.nodes:
            self._meet(node_id)
        for topic_id, name in changes.deleted.items():
            self._shelf.delete_all(name, topic_id)
        for name in changes.unknown:
            known = self._image.topics.get(name)
            self._shelf.forgotten(name, None if known is None else known.topic_id)
        units = dict.fromkeys(unit_of(moved.place) for moved in changes.partitions)
        if changes.configs:
            set_anew = set(changes.configs)
            units.update(dict.fromkeys(unit for unit in self.leaders if unit.topic in set_anew))
        if self.copying.is_limited:
            self._look_at_copies(changes)
        return list(units)

    def lay_down(self, units: Iterable[TopicPartition]) -> None:
        """Lead and copy no more what is to be led or copied in another epoch: nothing of it is written from here on,
        until it is learned."""
        for unit in units:
            _, epoch = self.leader_of(unit)
            leader, copy = self.leaders.get(unit), self.copies.get(unit)
            if leader is not None and leader.epoch != epoch:
                self._stop_leading(unit)
            if copy is not None and copy.follower.epoch != epoch:
                self._stop_copying(unit)

    def learn_units(self, units: Iterable[TopicPartition], now_ms: int) -> None:
        for unit in units:
            self._learn(unit, now_ms)

    def _look_at_copies(self, changes: ImageChanges) -> None:
        """CL-A9: which copies come slowly has changed with these."""
        places = {moved.place for moved in changes.partitions}
        places |= {place for place in self.copies if place.topic in changes.configs}
        for fetcher in self.fetchers.values():
            fetcher.look_again(fetcher.places & places)

    def _learn(self, unit: TopicPartition, now_ms: int) -> None:
        view, topic = self._image.partition(unit), self._image.topics.get(unit.topic)
        if (
            view is None
            or topic is None
            or (unit.topic == OFFSETS and self._image.partition(halves_of(unit)[1]) is None)
        ):
            return  # a shard of which only one half is told yet
        if self._hosting.is_of_another(unit, topic.topic_id):
            self._leave(unit)  # it was deleted and made again: its epochs have begun anew
        state = state_from_view(view)
        leader = self.leaders.get(unit)
        if leader is not None and leader.epoch == state.leader_epoch and state.leader == self.me:
            leader.learn(state, shared_peers(view.replicas, self._peers), self._min_isr(unit), now_ms)
            self.resized[unit] = None
            self._stirred(leader)
        step = self._hosting.learn(unit, topic.topic_id, state, view.replicas)
        match step:
            case BecomeLeader() if leader is None or leader.epoch != state.leader_epoch:
                self._lead(unit, state, view.replicas, now_ms)
            case BecomeFollower():
                self._follow(unit, state)
            case BecomeIdle():
                self._stop_leading(unit)
                self._stop_copying(unit)
        if self.me not in view.replicas:
            self._let_go(unit, view)

    def _let_go(self, unit: TopicPartition, view: PartitionView) -> None:
        """CL-F11: a copy that is no longer assigned here goes once enough others have everything."""
        self._outages.is_over(unit)
        if len(view.isr) < min(self._min_isr(unit), len(view.replicas)):
            return
        self._shelf.let_go((half, self._image.topics[half.topic].topic_id) for half in halves_of(unit))
        self._hosting.forget(unit)

    def _look_again(self, now_ms: int) -> None:
        """CL-F9: whether a log works again. Who led by it waits until the controller has heard, or it led on in an
        epoch in which it has let everybody down."""
        unit = self._outages.due(now_ms)
        view = None if unit is None else self._image.partition(unit)
        if unit is None or view is None or view.leader == self.me:
            return
        try:
            for half in halves_of(unit):
                self._open(half)
        except LogBroken as error:
            self._outages.still(unit, str(error))
            if (place := corrupt_place(error)) is not None:
                self._outages.found_corrupt(place, unit)
            return
        self._outages.is_over(unit)
        self._hosting.begin_again(unit)
        self._learn(unit, now_ms)

    def is_missed(self, unit: TopicPartition) -> bool:
        """Whether somebody may count on what is offline here: another node leads without it otherwise."""
        view = self._image.partition(unit)
        return view is None or view.leader in (NO_NODE_ID, self.me) or self.me in (*view.isr, *view.elr)

    def copy_anew(self, unit: TopicPartition, now_ms: int) -> None:
        """What was offline here, and is not missed, has been taken away: copy it from its leader."""
        self._outages.is_over(unit)
        self._hosting.begin_again(unit)
        self._learn(unit, now_ms)

    # What followers ask.

    def fetch(self, request: FetchRequest, reply: FetchReply, wait_ms: int, now_ms: int, *, min_bytes: int = 1) -> None:
        self.serving.fetch(request, reply, wait_ms, now_ms, min_bytes=min_bytes)

    def set_rates(self, *, leader: int | None, follower: int | None, now_ms: int) -> None:
        """CL-A9: bytes a second that this node sends as a leader, and asks for as a follower, of replicas that are
        listed and not in sync; None: as many as there are. Holds until it is said anew."""
        self.serving.throttle.limit(NO_LIMIT if leader is None else leader, now_ms)
        self.copying.limit(NO_LIMIT if follower is None else follower, now_ms)
        for fetcher in self.fetchers.values():
            fetcher.look_again(list(fetcher.places))

    def shown(self, place: TopicPartition, epoch: int) -> None:
        """CL-L9: somebody on the door between nodes names this leader epoch."""
        leader = self.leaders.get(unit_of(place))
        if leader is not None and leader.shown(epoch):
            self._stirred(leader)

    # What this node asks of the leaders.

    def requests(self, now_ms: int) -> list[tuple[int, FetchRequest]]:
        """The fetches that are due, each with the node to send it to."""
        due, epoch = [], self._own.epoch
        for node, fetcher in self.fetchers.items():
            request = fetcher.request(epoch, now_ms)
            if request is not None:
                due.append((node, request))
        return due

    def next_ms(self, now_ms: int) -> int | None:
        """When a fetch is due, or a follower that waits is to be answered, at the latest; None while nothing is."""
        due = self.serving.next_ms(now_ms)
        for fetcher in self.fetchers.values():
            next_ms = fetcher.next_ms()
            if next_ms is not None and (due is None or next_ms < due):
                due = next_ms
        return due

    def answered(self, node: int, request: FetchRequest, answer: FetchAnswer, now_ms: int) -> None:
        fetcher = self.fetchers[node]
        for place, stop in fetcher.answered(request, answer, now_ms):
            self._broke(unit_of(place), stop.reason, stays=stop.stays)
        if fetcher.undone:
            self.undone += fetcher.undone
            fetcher.undone.clear()

    def failed(self, node: int, request: FetchRequest, now_ms: int) -> None:
        self.fetchers[node].failed(request, now_ms)

    def unkept(self) -> list[TopicPartition]:
        """What has been copied and is to be flushed, in order."""
        found: list[TopicPartition] = []
        for fetcher in self.fetchers.values():
            found += fetcher.unkept
        found.sort()
        return found

    # The logs of what it leads.

    def appended(self, place: TopicPartition) -> None:
        """A log that this node leads has grown."""
        led = self.led[place]
        led.leader.appended(led.half, led.log.end)
        self.serving.grew(place)

    def begins(self, place: TopicPartition) -> None:
        """A log that this node leads may begin later than before: retention, or DeleteRecords, took what lay there."""
        led = self.led.get(place)
        if led is not None and led.log.start != led.leader.halves[led.half].start:
            led.leader.begins(led.half, led.log.start)
            self.serving.happened(place)

    def flushed(self, places: Iterable[TopicPartition], now_ms: int) -> bool:
        """These logs are flushed, as far as their `kept` says. Whether anything comes of it: more is committed, or a
        leader may be asked again. A leader's own flush mostly comes before those of its followers, and changes
        nothing."""
        fetches = False
        for place in places:
            led, copy = self.led.get(place), self.copies.get(place)
            if led is not None:
                led.leader.kept(led.half, led.log.kept, now_ms)
                self._stirred(led.leader)
            elif copy is not None:
                self.fetchers[copy.follower.leader].kept([place])
                fetches = True
        return fetches or bool(self.moved or self._stirring or self.lost)

    # Who is in sync.

    def questions(self, now_ms: int) -> list[IsrProposal]:
        """What to ask the controller for; each is to be answered by `altered`."""
        stirring, self._stirring = self._stirring, {}
        asked = []
        for unit in stirring:
            leader = self.leaders.get(unit)
            if leader is None:
                continue
            question = leader.wants(now_ms)
            if question is not None:
                asked.append(question)
            elif leader.wishes:
                self._stirring[unit] = None
        return asked

    def altered(self, question: IsrProposal, answer: IsrAnswer, now_ms: int) -> None:
        leader = self.leaders.get(question.unit)
        if leader is not None:
            leader.altered(question, answer, now_ms)
            self.resized[question.unit] = None
            self._stirred(leader)

    def check_replicas(self, now_ms: int) -> None:
        """What time brings: who has fallen behind, which logs begin later by now, and which log works again."""
        for place in list(self.led):
            self.begins(place)
        for leader in list(self.leaders.values()):
            leader.check_followers(now_ms)
            self._stirred(leader)
        self._look_again(now_ms)
        self._look_at_silenced(now_ms)

    def _look_at_silenced(self, now_ms: int) -> None:
        """CL-L9: an epoch that somebody named, and that no image brings, was never the controller's, or its image does
        not reach this node. The unit goes offline here, so that it is heard of and elected anew."""
        led = {
            unit: epoch
            for unit, epoch in self._hosting.silenced().items()
            if unit not in self._outages and (view := self._image.partition(unit)) and view.leader == self.me
        }
        self._silenced_ms = {unit: self._silenced_ms.get(unit, now_ms) for unit in led}
        for unit, epoch in led.items():
            if now_ms - self._silenced_ms[unit] >= SHOWN_PATIENCE_MS:
                self._broke(
                    unit,
                    f"a request at the listener between nodes named leader epoch {epoch}, which no controller has told "
                    f"of for {SHOWN_PATIENCE_MS // 1000} s: it is to be elected anew",
                )

    def look_around(self, session_ms: int, now_ms: int, *, in_touch: bool) -> None:
        """Who may have been passed by without hearing of it (`Leader.look_around`); in_touch: with ZooKeeper."""
        for unit, leader in self.leaders.items():
            if (leader.passed_by or not in_touch) and leader.look_around(session_ms, now_ms, in_touch=in_touch):
                self.moved.update(dict.fromkeys(halves_of(unit)))  # who is parked is to hear of it
        self.cut_off = not in_touch and any(leader.passed_by for leader in self.leaders.values())

    # Nodes.

    def _meet(self, node_id: int) -> None:
        if node_id == self.me:
            return  # it knows its own registration better
        peer, view = self._peer(node_id), self._image.nodes.get(node_id)
        gone = view is None or view.status is ClusterNodeStatus.GONE
        peer.epoch = NO_EPOCH if view is None or gone else view.epoch
        peer.leaving = view is not None and view.status is ClusterNodeStatus.SHUTTING_DOWN
        self.serving.registered(node_id)
