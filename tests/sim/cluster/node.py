"""A simulated node: real machines over a simulated disk, with everything that a process does around them.

It polls the controller, fetches from leaders, flushes, asks for changes of the in-sync replicas, takes records from
producers and answers readers. It decides nothing; `coordinator.replication` performs the same machines for real.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from muster.coordinator.cluster.controller import effects, events
from muster.coordinator.cluster.controller.settings import Settings
from muster.coordinator.cluster.facts import NO_EPOCH, Endpoint, Node, TopicPartition
from muster.coordinator.cluster.image import Changes, ClusterState, Image, NodeStatus
from muster.coordinator.cluster.in_sync import AlterIsr, IsrAnswer
from muster.coordinator.cluster.lease import lease_of
from muster.coordinator.cluster.replicas.messages import FetchAnswer, FetchRequest
from muster.coordinator.cluster.replicas.ports import LogBroken
from muster.coordinator.cluster.replicas.replicas import Replicas, ReplicaSettings
from muster.coordinator.cluster.replicas.serving import Led
from muster.coordinator.errors import ErrorCode
from tests.sim.cluster.disk import Disk, SimLog
from tests.sim.cluster.groups.coordinator import Answered, EpochsAsked, GroupAsk, SimGroups
from tests.sim.cluster.network import Broken, Host, Network, Refused
from tests.sim.cluster.seat import Seat
from tests.sim.cluster.zookeeper import Client, Ensemble
from tests.sim.world import START_MS, World

POLL_WAIT_MS = 500
FETCH_WAIT_MS = 500
PATIENCE_MS = 2_000
RETRY_MS = 100
LAG_MS = 3_000
CHECKPOINT_MS = 5_000


class Produce(NamedTuple):
    """A producer's batch for one partition, acks=all."""

    place: TopicPartition
    topic_id: bytes
    values: tuple[object, ...]


class Produced(NamedTuple):
    code: int
    offset: int = -1
    epoch: int = NO_EPOCH


class Consume(NamedTuple):
    place: TopicPartition
    topic_id: bytes
    offset: int


class Consumed(NamedTuple):
    code: int
    offset: int = -1
    values: tuple[object, ...] = ()
    epoch: int = NO_EPOCH


class Poll(NamedTuple):
    node: int
    node_epoch: int
    image: Any
    offline: tuple[events.Offline, ...]


class Ask(NamedTuple):
    """AlterPartition, or what operators ask of the controller: made into an event once it has a request id."""

    make: Callable[[int], events.Event]


class Probing(NamedTuple):
    """Somebody looks whether the door is open."""


class SimNode:
    """Node `id`. `start` begins a life of its process; `kill` ends it; `freeze` lets it stand still."""

    def __init__(
        self,
        world: World,
        network: Network,
        zookeeper: Ensemble,
        node_id: int,
        settings: Settings,
        answered: Callable[[Answered], None] | None = None,
        make_disk: Callable[[str], Disk] = Disk,
    ) -> None:
        """answered: hears of each answer about a group. None: nobody asks for groups here."""
        self.world = world
        self.network = network
        self.ensemble = zookeeper
        self.id = node_id
        self.name = f"n{node_id}"
        self.settings = settings
        self._answered = answered
        self.groups: SimGroups | None = None
        self._make_disk = make_disk
        self.disk = make_disk(self._new_directory())
        self.unclean = False
        self.life = 0
        self.alive = False
        self.frozen = False
        self.acted: Callable[[SimNode], None] = lambda node: None
        """Hears that it is about to do something: else it is as it was."""
        self.notes: list[effects.Note] = []
        self.rate = 1.0 + world.rng.uniform(-0.01, 0.01)
        self._backlog: list[Callable[[], None]] = []
        self._parked: dict[TopicPartition, list[tuple[int, int, int, Callable[[Any], None]]]] = {}
        self._requests: dict[int, tuple[int, Callable[[Any], None]]] = {}
        self._request = 0
        self._unflushed: set[TopicPartition] = set()
        self._polling = self._flushing = False
        self._armed_ms = 0
        self.image = Image()
        self.zookeeper: Client
        self.seat: Seat
        self.replicas: Replicas
        self.epoch = NO_EPOCH
        network.add(Host(self.name, self._serve, lambda: self.alive))

    # Its process and its clock.

    def start(self) -> None:
        self.life += 1
        self.acted(self)
        self.alive, self.frozen = True, False
        self.world.census["start"] += 1
        self._backlog, self._parked, self._requests = [], {}, {}
        self._polling = self._flushing = False
        self._unflushed, self._armed_ms = set(), 0
        self.epoch = NO_EPOCH
        self.image = Image()
        settings = ReplicaSettings(lag_time_ms=LAG_MS, min_isr=self.settings.min_isr)
        self.replicas = Replicas(self.id, self.disk, settings, self.now())
        life = self.life
        self.zookeeper = Client(
            self.ensemble, self.network, self.name, lambda what: self.seat.changed(what), lambda do: self._run(life, do)
        )
        self.seat = Seat(self, self.zookeeper, self.settings)
        self.groups = None if self._answered is None else SimGroups(self, self._answered)
        self.zookeeper.start()
        self.trace(f"{self.name} starts, directory {self.disk.directory}")
        self._look()
        self._checkpoint()

    def kill(self, *, power: bool = False) -> None:
        self.alive = False
        self.life += 1
        self.network.died(self.name)
        if power:
            self.disk.lost_power(self.world.rng)
        else:
            self.disk.killed()
        self.trace(f"{self.name} {'loses power' if power else 'is killed'}")

    def lose_disk(self) -> None:
        """While it is down: a new disk is put in."""
        self.disk = self._make_disk(self._new_directory())
        self.trace(f"{self.name} gets a new disk, directory {self.disk.directory}")

    def freeze(self, for_ms: int) -> None:
        if not self.alive or self.frozen:
            return
        self.frozen = True
        life = self.life
        self.trace(f"{self.name} stands still for {for_ms} ms")

        def thaw() -> None:
            if self.life == life:
                self.frozen = False
                if self.groups is not None:
                    self.groups.stood_still(for_ms)
                backlog, self._backlog = self._backlog, []
                for action in backlog:
                    self.world.after(0, lambda action=action: self._run(life, action))

        self.world.after(for_ms, thaw)

    def now(self) -> int:
        return int((self.world.now_ms - START_MS) * self.rate) + 1_000_000 * self.id

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        life = self.life
        self.world.after(max(0, round(delay_ms / self.rate)), lambda: self._run(life, action))

    def _run(self, life: int, action: Callable[[], None]) -> None:
        if life != self.life or not self.alive:
            return
        if self.frozen:
            self._backlog.append(action)
            return
        self.acted(self)
        action()

    def failed(self, error: BaseException) -> None:
        """A mistake of the program."""
        self.world.violated("Bug", f"{self.name}: {error!r}")

    def trace(self, line: str) -> None:
        self.world.trace(line)

    def draw_id(self) -> bytes:
        return self.world.rng.randbytes(16)

    def _new_directory(self) -> str:
        return f"d{self.world.rng.getrandbits(48):012x}"

    # What its seat at ZooKeeper needs.

    def registration(self) -> Node:
        doors = (Endpoint("REPLICATION", self.name, 1),)
        return Node(self.id, 0, self.disk.directory, self.unclean, doors, rack=None)

    def registered(self, epoch: int) -> None:
        self.epoch = epoch
        self.replicas.registered(epoch)
        self.trace(f"{self.name} is registered, epoch {epoch}")
        self._poll()

    def noted(self, note: effects.Note) -> None:
        self.notes.append(note)

    def answer(self, answer: effects.Answer) -> None:
        life, reply = self._requests.pop(answer.request, (0, None))
        if reply is not None and life == self.life:
            reply(answer.body)

    def probe(self, probe: effects.Probe) -> None:
        """Three tries within 300 ms, or it is not refused."""
        refused: list[int] = []

        def tried(outcome: Any) -> None:
            if not isinstance(outcome, Refused):
                self.seat.tell(events.Refused(probe.node, probe.node_epoch, ()))
                return
            refused.append(self.now())
            if len(refused) == 3:
                self.seat.tell(events.Refused(probe.node, probe.node_epoch, tuple(refused)))
            else:
                self.later(80, attempt)

        def attempt() -> None:
            self.ask(f"n{probe.node}", Probing(), tried, by="probe", patience_ms=300)

        attempt()

    # What others ask.

    def _serve(self, asker: str, request: Any, reply: Callable[[Any], None]) -> None:
        self._run(self.life, lambda: self._take(request, reply))

    def _take(self, request: Any, reply: Callable[[Any], None]) -> None:
        match request:
            case FetchRequest():
                life = self.life
                self.replicas.fetch(
                    request, lambda answer: reply(answer) if self.life == life else None, FETCH_WAIT_MS, self.now()
                )
                self.settle()
            case Poll():
                number = self._number(reply)
                polled = events.Polled(
                    number, request.node, request.node_epoch, request.image, request.offline, POLL_WAIT_MS
                )
                self._for_controller(number, polled, ClusterState(error=ErrorCode.NOT_CONTROLLER))
            case Ask(make):
                number = self._number(reply)
                self._for_controller(number, make(number), effects.IsrAltered(ErrorCode.NOT_CONTROLLER))
            case Produce():
                self._produce(request, reply)
            case Consume():
                self._consume(request, reply)
            case GroupAsk(asked) if self.groups is not None:
                life = self.life
                self.groups.receive(asked, lambda answer: reply(answer) if self.life == life else None)
                self.settle()
            case EpochsAsked() if self.groups is not None:
                reply(self.groups.epochs(request))
            case Probing():
                reply(None)

    def _number(self, reply: Callable[[Any], None]) -> int:
        self._request += 1
        self._requests[self._request] = (self.life, reply)
        return self._request

    def _for_controller(self, number: int, event: events.Event, otherwise: Any) -> None:
        if not self.seat.tell(event):
            self._requests.pop(number)[1](otherwise)

    # Records.

    def _produce(self, request: Produce, reply: Callable[[Any], None]) -> None:
        led = self._led(request)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if led is None else led.leader.may_append(-1)
        if led is None or code != ErrorCode.NONE:
            reply(Produced(code))
            return
        log, first = led.log, led.log.end
        assert isinstance(log, SimLog)
        try:
            log.append(led.leader.epoch, request.values)
        except LogBroken as error:
            self.replicas.broke(request.place, str(error))
            reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self.settle()
            return
        self.replicas.appended(request.place)
        self._parked.setdefault(request.place, []).append((log.end, first, led.leader.epoch, reply))
        self._flush_soon([request.place])
        self.settle()

    def _led(self, request: Produce | Consume) -> Led | None:
        led = self.replicas.led.get(request.place)
        return led if led is not None and led.topic_id == request.topic_id else None

    def _answer_parked(self, place: TopicPartition) -> None:
        """L2: what became of the appends that wait."""
        waiting = self._parked.pop(place, [])
        led = self.replicas.led.get(place)
        still = []
        for end, first, epoch, reply in waiting:
            if led is None or led.leader.epoch != epoch:
                reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                continue
            code = led.leader.parked(led.half, end)
            if code is None:
                still.append((end, first, epoch, reply))
            else:
                reply(Produced(code, first, epoch))
        if still:
            self._parked[place] = still

    def _consume(self, request: Consume, reply: Callable[[Any], None]) -> None:
        led = self._led(request)
        if led is None or led.leader.over or led.leader.passed_by:
            reply(Consumed(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        log = led.log
        assert isinstance(log, SimLog)
        if request.offset < log.start:
            reply(Consumed(ErrorCode.OFFSET_OUT_OF_RANGE, log.start))
            return
        entries = log.model.read(request.offset, max(0, min(50, log.high_watermark - request.offset)))
        reply(Consumed(ErrorCode.NONE, request.offset, tuple(entries), led.leader.epoch))

    # Its own rounds.

    def settle(self) -> None:
        """What is to be done after anything happened."""
        replicas = self.replicas
        while replicas.moved:
            moved, replicas.moved = replicas.moved, {}
            for place in moved:
                self._answer_parked(place)
                if self.groups is not None:
                    self.groups.moved(place)
        if self.groups is not None:
            self.groups.settled()
        replicas.gained.clear()
        replicas.lost.clear()
        replicas.resized.clear()
        replicas.serving.wake(self.now())
        for question in replicas.questions(self.now()):
            self._alter(question)
        for node, request in replicas.requests(self.now()):
            self._fetch(node, request)
        if unkept := replicas.unkept():
            self._flush_soon(unkept)
        self._arm()

    def _flush_soon(self, places: list[TopicPartition]) -> None:
        """One group commit for everything that is not flushed by the time it begins."""
        self._unflushed |= set(places)
        if self._flushing:
            return
        self._flushing = True
        self.later(self.world.between(0, 2), self._begin_flush)

    def _begin_flush(self) -> None:
        places, self._unflushed = sorted(self._unflushed), set()
        ends = {place: self.disk.logs[place].end for place in places if place in self.disk.logs}
        self.later(self.world.between(1, 15), lambda: self._flushed(ends))

    def _flushed(self, ends: dict[TopicPartition, int]) -> None:
        self._flushing = False
        done = []
        for place, end in ends.items():
            log = self.disk.logs.get(place)
            if log is None:
                continue
            try:
                log.flush(end)
            except LogBroken as error:
                self.replicas.broke(place, str(error))
            else:
                done.append(place)
        self.replicas.flushed(done, self.now())
        if self._unflushed:
            self._flush_soon([])
        self.settle()

    def _look(self) -> None:
        self.replicas.look(self.now())
        before = self.replicas.cut_off
        self.replicas.look_around(self.ensemble.timeout_ms, self.now(), in_touch=self.zookeeper.connected)
        self.world.census["nodes that may have been passed by"] += self.replicas.cut_off and not before
        self.settle()
        self.later(LAG_MS // 4, self._look)

    def _arm(self) -> None:
        """Look again when the next parked fetch has waited long enough, or a node may be asked again."""
        now_ms = self.now()
        due = [fetcher.next_ms() for fetcher in self.replicas.fetchers.values()]
        due.append(self.replicas.serving.next_ms(now_ms))
        next_ms = min((each for each in due if each is not None), default=None)
        if next_ms is None:
            return
        at_ms = next_ms if next_ms > now_ms else now_ms + RETRY_MS
        if now_ms < self._armed_ms <= at_ms:
            return
        self._armed_ms = at_ms
        self.later(max(1, at_ms - now_ms), lambda: self._due(at_ms))

    def _due(self, at_ms: int) -> None:
        if self._armed_ms == at_ms:  # Another moment has not taken its place.
            self._armed_ms = 0
            self.settle()

    def _checkpoint(self) -> None:
        self.disk.checkpoint()
        self.later(CHECKPOINT_MS, self._checkpoint)

    def ask(
        self, whom: str, request: Any, then: Callable[[Any], None], *, by: str, patience_ms: int = PATIENCE_MS
    ) -> None:
        life = self.life
        self.network.ask(
            self.name, whom, request, lambda got: self._run(life, lambda: then(got)), patience_ms=patience_ms, by=by
        )

    def _fetch(self, node: int, request: FetchRequest) -> None:
        def fetched(outcome: FetchAnswer | Broken) -> None:
            if isinstance(outcome, Broken):
                self.replicas.failed(node, request, self.now())
                self._broken(node)
            else:
                self.replicas.answered(node, request, outcome, self.now())
            self.settle()

        self.ask(f"n{node}", request, fetched, by="fetch")

    def _poll(self) -> None:
        """One long poll of the controller after the other."""
        if self._polling or self.epoch == NO_EPOCH:
            return
        controller = self.seat.controller
        if controller is None:
            self.later(RETRY_MS, self._poll)
            return
        self._polling = True
        offline = tuple(
            events.Offline(topic_id, place.partition, why)
            for place, (topic_id, why) in sorted(self.replicas.offline.items())
        )
        poll = Poll(self.id, self.epoch, self.image.known, offline)

        def polled(outcome: ClusterState | Broken) -> None:
            self._polling = False
            wait_ms = 0
            if isinstance(outcome, Broken):
                self._broken(controller)
                wait_ms = RETRY_MS
            elif outcome.error == ErrorCode.STALE_BROKER_EPOCH:
                if poll.node_epoch == self.epoch and any(
                    each.id == self.id and each.status is NodeStatus.GONE for each in outcome.nodes
                ):
                    self.epoch = NO_EPOCH
                    self.seat.register_anew()
                wait_ms = RETRY_MS
            elif outcome.error != ErrorCode.NONE:
                wait_ms = RETRY_MS
            elif (changes := self.image.apply(outcome)) is not None:
                self._learn_in_steps(changes)
                return
            self.settle()
            self.later(wait_ms, self._poll)

        self.ask(f"n{controller}", poll, polled, by="poll")

    def _learn_in_steps(self, changes: Changes) -> None:
        """All at once, or as a node does it where there are many: other things happen in between, but no poll."""
        units = self.replicas.begin(self.image, changes)
        if self.world.chance(0.8):
            self.replicas.learn_units(units, self.now())
            units = []
        else:
            self.replicas.lay_down(units)
        self._polling = True

        def step() -> None:
            self.settle()
            if units:
                self.replicas.learn_units([units.pop(0)], self.now())
                self.settle()
                self.later(self.world.between(1, 60), step)
            else:
                if self.groups is not None:
                    self.groups.learned(changes)
                self._polling = False
                self._poll()

        self.later(self.world.between(1, 60), step) if units else step()

    def _broken(self, node: int) -> None:
        """C9: whose connection broke is looked at by the controller, or, where that is the controller, by this node."""
        if node == self.seat.controller and node != self.id and self.settings.eviction:
            epoch = self.image.known.epoch
            refused: list[int] = []

            def tried(outcome: Any) -> None:
                if not isinstance(outcome, Refused):
                    return
                refused.append(self.now())
                if len(refused) == 3:
                    self.seat.depose(epoch)
                else:
                    self.later(80, attempt)

            def attempt() -> None:
                self.ask(f"n{node}", Probing(), tried, by="probe", patience_ms=300)

            attempt()
        elif self.seat.machine is not None:
            self.seat.tell(events.Broken(node))

    def _alter(self, question: AlterIsr) -> None:
        topic = self.image.topics.get(question.unit.topic)
        controller = self.seat.controller
        if topic is None or controller is None:
            self.replicas.altered(question, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT), self.now())
            self.later(RETRY_MS, self.settle)
            return
        item = events.IsrItem(
            topic.topic_id,
            question.unit.partition,
            question.leader_epoch,
            question.partition_epoch,
            tuple(events.IsrMember(*each) for each in question.isr),
        )
        node_epoch = self.epoch

        def altered(outcome: effects.IsrAltered | Broken) -> None:
            answer = IsrAnswer(ErrorCode.REQUEST_TIMED_OUT)
            if not isinstance(outcome, Broken):
                answer = answer_of(outcome)
            self.replicas.altered(question, answer, self.now())
            self.settle()
            self.later(RETRY_MS, self.settle)

        make = lambda number: events.AlterIsr(number, self.id, node_epoch, (item,))  # noqa: E731
        self.ask(f"n{controller}", Ask(make), altered, by="alter")

    # For checkers.

    def lease_holds(self, unit: TopicPartition) -> bool:
        """Whether this node would answer for the unit now (G4, G5)."""
        leader = self.replicas.leaders.get(unit)
        if leader is None or leader.over:
            return False
        session_ms = self.ensemble.timeout_ms
        promise = self.replicas.promises.get(unit)
        if promise is not None and self.now() < promise.answers_from(session_ms):
            return False
        return self.now() < leader.lease_until(lease_of(session_ms))


def answer_of(outcome: effects.IsrAltered) -> IsrAnswer:
    if outcome.error != ErrorCode.NONE:
        return IsrAnswer(outcome.error)
    result = outcome.results[0]
    if result.state is None:
        return IsrAnswer(result.error)
    state = result.state
    return IsrAnswer(result.error, state.leader_epoch, state.partition_epoch, state.isr)
