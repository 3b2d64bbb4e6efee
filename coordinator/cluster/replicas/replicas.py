"""What one node does with all its replicas, as the image changes, followers ask, logs grow and time passes."""

from collections.abc import Iterable
from dataclasses import dataclass

from muster.coordinator.cluster.facts import NO_EPOCH, NOBODY, OFFSETS, State, TopicPartition, halves, unit_of
from muster.coordinator.cluster.follower import Follower
from muster.coordinator.cluster.image import Changes, Image, NodeStatus, PartitionView
from muster.coordinator.cluster.in_sync import AlterIsr, IsrAnswer
from muster.coordinator.cluster.leader import Leader, peers_of
from muster.coordinator.cluster.lease import Peer, Promise, Source
from muster.coordinator.cluster.progress import Half
from muster.coordinator.cluster.replicas.copying import Copy, Fetcher, Undone
from muster.coordinator.cluster.replicas.hosting import Follow, Hosting, Lead, Rest
from muster.coordinator.cluster.replicas.messages import ANSWER_BYTES, PART_BYTES, FetchAnswer, FetchRequest
from muster.coordinator.cluster.replicas.ports import LogBroken, Logs, ReplicaLog
from muster.coordinator.cluster.replicas.serving import Led, Reply, Serving

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """What the node sets: `replica.lag.time.max.ms`, `replica.fetch.backoff.ms`, `min.insync.replicas` of topics that
    say nothing, `replica.fetch.max.bytes` and `replica.fetch.response.max.bytes`."""

    lag_time_ms: int = 10_000
    backoff_ms: int = 200
    min_isr: int = 2
    part_bytes: int = PART_BYTES
    answer_bytes: int = ANSWER_BYTES


class Replicas:
    """The replicas of node `me`. Whoever performs it calls, in any order:

        learn(image, changes)              when the image has changed
        fetch(request, reply)              when a follower asks; wake() after anything that happened
        requests()                         for the fetches to send; answered() or failed() for each
        appended(place), flushed(places)   when a log has grown here, or is flushed
        questions()                        for what to ask the controller; altered() for each
        look()                             every half of `replica.lag.time.max.ms`, or more often

    and looks at `moved` (partitions whose high watermark has moved), `gained` and `lost` (units that this node leads
    from now on, or no more), `undone` (what unclean elections cost), `offline` and `strays` afterwards.
    """

    def __init__(self, me: int, logs: Logs, settings: ReplicaSettings, now_ms: int) -> None:
        self.me = me
        self._logs = logs
        self._settings = settings
        self._started_ms = now_ms
        self._hosting = Hosting(me)
        self._peers: dict[int, Peer] = {}
        self._image = Image()
        self._stirring: dict[TopicPartition, None] = {}
        self.leaders: dict[TopicPartition, Leader] = {}
        self.led: dict[TopicPartition, Led] = {}
        self.copies: dict[TopicPartition, Copy] = {}
        self.fetchers: dict[int, Fetcher] = {}
        self.promises: dict[TopicPartition, Promise] = {}
        """Of shards: what this node lets their leaders believe (G5)."""
        self.moved: dict[TopicPartition, None] = {}
        self.gained: dict[TopicPartition, int] = {}
        self.lost: dict[TopicPartition, None] = {}
        self.undone: list[Undone] = []
        self.offline: dict[TopicPartition, tuple[bytes, str]] = {}
        self.strays: dict[TopicPartition, bytes] = {}
        self.serving = Serving(self.led, self.leader_of, self._peer, self._stirred, self.broke)

    @property
    def node_epoch(self) -> int:
        return self._peer(self.me).epoch

    def registered(self, node_epoch: int) -> None:
        """This node has registered anew."""
        self._peer(self.me).epoch = node_epoch
        for fetcher in self.fetchers.values():
            fetcher.begin_anew()

    def leader_of(self, place: TopicPartition) -> tuple[int, int]:
        """(leader, leader epoch) as the image has it; (NOBODY, NO_EPOCH) for what it does not know."""
        view = self._image.partition(place)
        return (NOBODY, NO_EPOCH) if view is None else (view.leader, view.leader_epoch)

    # The image.

    def learn(self, image: Image, changes: Changes, now_ms: int) -> None:
        """The image has changed. Takes the steps that follow, unit by unit."""
        self._image = image
        for node_id in changes.nodes:
            self._meet(node_id)
        for topic_id, name in changes.deleted.items():
            self._delete_all(name, topic_id)
        for name in changes.unknown:
            self._forgotten(name)
        units = dict.fromkeys(unit_of(moved.place) for moved in changes.partitions)
        for name in changes.configs:
            units.update(dict.fromkeys(unit for unit in self.leaders if unit.topic == name))
        for unit in units:
            self._learn(unit, now_ms)

    def _learn(self, unit: TopicPartition, now_ms: int) -> None:
        view, topic = self._image.partition(unit), self._image.topics.get(unit.topic)
        if view is None or topic is None or any(self._image.partition(half) is None for half in halves(unit)):
            return  # a shard of which only one half is told yet
        if self._hosting.is_of_another(unit, topic.topic_id):
            self._leave(unit)  # it was deleted and made again: its epochs have begun anew
        state = state_of(view)
        leader = self.leaders.get(unit)
        if leader is not None and leader.epoch == state.leader_epoch and state.leader == self.me:
            leader.learn(state, peers_of(view.replicas, self._peers), self._min_isr(unit), now_ms)
            self._stirred(leader)
        step = self._hosting.learn(unit, topic.topic_id, state, view.replicas)
        match step:
            case Lead() if leader is None or leader.epoch != state.leader_epoch:
                self._lead(unit, state, view.replicas, now_ms)
            case Follow():
                self._follow(unit, state)
            case Rest():
                self._stop_leading(unit)
                self._stop_copying(unit)
        if self.me not in view.replicas:
            self._let_go(unit, view)

    def _lead(self, unit: TopicPartition, state: State, replicas: tuple[int, ...], now_ms: int) -> None:
        self._stop_leading(unit)
        self._stop_copying(unit)
        try:
            logs = [self._open(half) for half in halves(unit)]
            for _, log in logs:
                log.lead(state.leader_epoch)
        except LogBroken as error:
            self._broke(unit, str(error))
            return
        leader = Leader(
            self._peer(self.me),
            unit,
            state,
            peers_of(replicas, self._peers),
            [Half(start=log.start, end=log.end, kept=log.kept, high_watermark=log.high_watermark) for _, log in logs],
            min_isr=self._min_isr(unit),
            lag_time_ms=self._settings.lag_time_ms,
            now_ms=now_ms,
        )
        self.leaders[unit] = leader
        for number, (half, (topic_id, log)) in enumerate(zip(halves(unit), logs, strict=True)):
            self.led[half] = Led(leader, number, log, topic_id)
            self.serving.happened(half)
        self.lost.pop(unit, None)
        self.gained[unit] = state.leader_epoch
        self._stirred(leader)

    def _follow(self, unit: TopicPartition, state: State) -> None:
        self._stop_leading(unit)
        fetcher = self._fetcher(state.leader)
        for half in halves(unit):
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
        if unit.topic == OFFSETS:
            self._promise(unit).follow(fetcher.source)

    def _copy(self, half: TopicPartition, state: State) -> Copy:
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
        return Copy(follower, log, topic_id)

    def _stop_leading(self, unit: TopicPartition) -> None:
        leader = self.leaders.pop(unit, None)
        if leader is None:
            return
        leader.over = True
        for half in halves(unit):
            self.led.pop(half, None)
            self.moved[half] = None  # who is parked hears that it leads no more
            self.serving.happened(half)
        self.gained.pop(unit, None)
        self.lost[unit] = None

    def _stop_copying(self, unit: TopicPartition) -> None:
        for half in halves(unit):
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

    def _let_go(self, unit: TopicPartition, view: PartitionView) -> None:
        """F11: a copy that is no longer assigned here goes once enough others have everything."""
        if len(view.isr) < min(self._min_isr(unit), len(view.replicas)):
            return
        for half in halves(unit):
            topic_id = self._image.topics[half.topic].topic_id
            if self._logs.topic_id(half) == topic_id:
                self._logs.delete(half, topic_id)
        self._hosting.forget(unit)

    def _delete_all(self, name: str, topic_id: bytes) -> None:
        for place, held_id in list(self._logs.held()):
            if place.topic != name or held_id != topic_id:
                continue
            if self._holds(place, topic_id):
                self._leave(unit_of(place))
            self._logs.delete(place, topic_id)
            self.strays.pop(place, None)

    def _holds(self, place: TopicPartition, topic_id: bytes) -> bool:
        """Whether what is led or copied here is of this topic id, and not of a later topic of the same name."""
        led, copy = self.led.get(place), self.copies.get(place)
        return any(each is not None and each.topic_id == topic_id for each in (led, copy))

    def _forgotten(self, name: str) -> None:
        """The image names the topic no more, or one of another id by this name, and does not say that it was deleted:
        keep what is here (F11)."""
        known = self._image.topics.get(name)
        for place, topic_id in self._logs.held():
            if place.topic == name and (known is None or known.topic_id != topic_id):
                if self._holds(place, topic_id):
                    self._leave(unit_of(place))
                self.strays[place] = topic_id

    def _broke(self, unit: TopicPartition, why: str) -> None:
        """A log failed (F9): its unit goes offline here, and the controller is told with the next poll."""
        self._stop_leading(unit)
        self._stop_copying(unit)
        for half in halves(unit):
            topic = self._image.topics.get(half.topic)
            if topic is not None:
                self.offline[half] = (topic.topic_id, why)

    # What followers ask.

    def fetch(self, request: FetchRequest, reply: Reply, wait_ms: int, now_ms: int) -> None:
        self.serving.fetch(request, reply, wait_ms, now_ms)

    def shown(self, place: TopicPartition, epoch: int) -> None:
        """L9: somebody on the door between nodes names this leader epoch."""
        leader = self.leaders.get(unit_of(place))
        if leader is not None and leader.shown(epoch):
            self._stirred(leader)

    # What this node asks of the leaders.

    def requests(self, now_ms: int) -> list[tuple[int, FetchRequest]]:
        """The fetches that are due, each with the node to send it to."""
        due = []
        for node, fetcher in self.fetchers.items():
            request = fetcher.request(self.node_epoch, now_ms)
            if request is not None:
                due.append((node, request))
        return due

    def answered(self, node: int, request: FetchRequest, answer: FetchAnswer, now_ms: int) -> None:
        fetcher = self.fetchers[node]
        for place, why in fetcher.answered(request, answer, now_ms):
            self._broke(unit_of(place), why)
        if fetcher.undone:
            self.undone += fetcher.undone
            fetcher.undone.clear()

    def failed(self, node: int, request: FetchRequest, now_ms: int) -> None:
        self.fetchers[node].failed(request, now_ms)

    def unkept(self) -> list[TopicPartition]:
        """What has been copied and is to be flushed, in order."""
        return sorted(place for fetcher in self.fetchers.values() for place in fetcher.unkept)

    # The logs of what it leads.

    def appended(self, place: TopicPartition) -> None:
        """A log that this node leads has grown."""
        led = self.led[place]
        led.leader.appended(led.half, led.log.end)
        self.serving.happened(place)

    def flushed(self, places: Iterable[TopicPartition], now_ms: int) -> None:
        """These logs are flushed, as far as their `kept` says."""
        for place in places:
            led, copy = self.led.get(place), self.copies.get(place)
            if led is not None:
                led.leader.kept(led.half, led.log.kept, now_ms)
                self._stirred(led.leader)
            elif copy is not None:
                self.fetchers[copy.follower.leader].kept([place])

    def broke(self, place: TopicPartition, why: str) -> None:
        """A log could not be read or written."""
        self._broke(unit_of(place), why)

    # Who is in sync.

    def questions(self, now_ms: int) -> list[AlterIsr]:
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

    def altered(self, question: AlterIsr, answer: IsrAnswer, now_ms: int) -> None:
        leader = self.leaders.get(question.unit)
        if leader is not None:
            leader.altered(question, answer, now_ms)
            self._stirred(leader)

    def look(self, now_ms: int) -> None:
        """What time brings: who has fallen behind."""
        for leader in list(self.leaders.values()):
            leader.look(now_ms)
            self._stirred(leader)

    def _stirred(self, leader: Leader) -> None:
        if leader.over:
            if self.leaders.get(leader.unit) is leader:
                self._hosting.shown(leader.unit, leader.seen_epoch)
                self._stop_leading(leader.unit)
            return
        if leader.moved:
            leader.moved = False
            for half, place in zip(leader.halves, halves(leader.unit), strict=True):
                log = self.led[place].log
                if half.high_watermark != log.high_watermark:
                    log.tell_high_watermark(half.high_watermark)
                    self.moved[place] = None
                    self.serving.happened(place)
        if leader.wishes:
            self._stirring[leader.unit] = None

    # Nodes.

    def _peer(self, node: int) -> Peer:
        return self._peers.setdefault(node, Peer(node))

    def _meet(self, node_id: int) -> None:
        if node_id == self.me:
            return  # it knows its own registration better
        peer, view = self._peer(node_id), self._image.nodes.get(node_id)
        gone = view is None or view.status is NodeStatus.GONE
        peer.epoch = NO_EPOCH if view is None or gone else view.epoch
        peer.leaving = view is not None and view.status is NodeStatus.SHUTTING_DOWN
        self.serving.registered(node_id)

    def _fetcher(self, node: int) -> Fetcher:
        if node not in self.fetchers:
            settings = self._settings
            self.fetchers[node] = Fetcher(
                self.me,
                Source(node),
                self.copies,
                settings.backoff_ms,
                part_bytes=settings.part_bytes,
                answer_bytes=settings.answer_bytes,
            )
        return self.fetchers[node]

    def _promise(self, unit: TopicPartition) -> Promise:
        return self.promises.setdefault(unit, Promise(self._started_ms))

    def _open(self, half: TopicPartition) -> tuple[bytes, ReplicaLog]:
        topic_id = self._image.topics[half.topic].topic_id
        return topic_id, self._logs.open(half, topic_id)

    def _min_isr(self, unit: TopicPartition) -> int:
        text = self._image.topics[unit.topic].configs.get(MIN_ISR, "")
        return int(text) if text.isdecimal() else self._settings.min_isr


def state_of(view: PartitionView) -> State:
    return State(
        leader=view.leader,
        leader_epoch=view.leader_epoch,
        isr=view.isr,
        elr=view.elr,
        partition_epoch=view.partition_epoch,
        unclean_epoch=view.unclean_epoch,
    )
