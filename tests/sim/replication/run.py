"""One run of a simulated cluster: nodes, clients, weather, and the checks afterwards."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain

from muster.coordinator.core.requests.shard_diary import LEAST_FIRST_SESSION_MS
from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    OFFSETS,
    TRANSACTIONS,
    ClusterTopic,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller.controller_state import UNCLEAN_LIFE, ControllerSettings
from muster.coordinator.replication.protocol.node_replicas import ROOM_TO_LEAD
from tests.sim.replication.checkers import Checkers
from tests.sim.replication.clients import Producer, Promises, Reader
from tests.sim.replication.disk import HASTY, PLENTY, Disk
from tests.sim.replication.elector import Elector
from tests.sim.replication.groups.checkers import Stale
from tests.sim.replication.groups.coordinator import LONG_MS
from tests.sim.replication.groups.members import Auditor, ClassicMember, ConsumerMember, MemberHistory
from tests.sim.replication.network import Host, Network
from tests.sim.replication.node import SimNode
from tests.sim.replication.process.rounds import LAG_MS
from tests.sim.replication.real_disk import RealDisk
from tests.sim.replication.reassigner import Reassigner
from tests.sim.replication.transactions.checkers import TransactionChecks
from tests.sim.replication.transactions.coordinator import DATA_TOPICS, ID_SHARDS, SharedByIds
from tests.sim.replication.transactions.position_checks import PositionChecks
from tests.sim.replication.transactions.producers import ProducersHistory
from tests.sim.replication.transactions.workers import PositionsHistory
from tests.sim.replication.watching import DELETED, DRAINED, RETRY_MS, TOPICS
from tests.sim.replication.weather import Weather
from tests.sim.replication.zookeeper import NAME, Client, ConnectionLoss, Create, Delete, Ensemble, Put
from tests.sim.world import START_MS, Violated, World

SESSION_MS = 3_000
QUIET_MS = SESSION_MS + 12_000
"""When faults end, everything has to be well within this."""
HEARD_MS = 1_000
"""By then all have heard of what was written."""


@dataclass(slots=True)
class Result:
    seed: int
    events: int = 0
    seconds: float = 0.0
    node_seconds: float = 0.0
    """Simulated: how long it went on, times its nodes."""
    census: dict[str, int] = field(default_factory=dict)
    violation: str = ""
    lines: list[str] = field(default_factory=list)
    digest: str = ""


class Run:
    def __init__(self, seed: int, weather: Weather, *, keep_trace: bool = False) -> None:
        self.world = World(seed, keep_trace=keep_trace)
        self.weather = weather
        self.network = Network(self.world, slow_ms=self.world.between(2, 20))
        self.ensemble = Ensemble(self.world, self.network, SESSION_MS)
        settings = ControllerSettings(
            offsets_partitions=2,
            imbalance_check_ms=8_000,
            shutdown_wait_ms=500,
            unclean_election=weather.unclean and not weather.asked,
        )
        ids = range(1, weather.nodes + 1)
        self.promises = Promises()
        self.stale = Stale(self.world)
        answered = self.stale.answered if weather.groups or weather.positions or weather.workers else None
        disk = RealDisk if weather.real else Disk
        self.history = MemberHistory(weather.session_ms or LONG_MS)
        self.nodes = [
            SimNode(self.world, self.network, self.ensemble, each, settings, answered, disk, self.history.session_ms)
            for each in ids
        ]
        self.checks = TransactionChecks(self.world, self.nodes)
        shared = SharedByIds(self.checks.answered, self._begun_in_a_log, self._marker_late, weather.late_markers)
        self.checks.timed_out = shared.timed_out
        clients = (self.world, self.nodes, self.network, shared, self.checks.told)
        self.transactional = ProducersHistory(*clients)
        if weather.positions or weather.workers:
            self.transactional = history = PositionsHistory(weather, *clients)
            self.checks.positions = watching = PositionChecks(self.world, self.nodes, history, self._positions_passed)
            history.outputs = watching.rules.outputs
            for node in self.nodes:
                node.watching = watching
        self.checks.history = self.transactional
        self.ids = weather.workers or weather.ids
        for node in self.nodes:
            node.transactional = shared if self.ids else None
        self.checkers = Checkers(self.world, self.ensemble, self.nodes, self.promises, unclean=weather.unclean)
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.topics = 0
        self.thawed_ms = START_MS
        """When the last that stands still goes on."""
        self.new_disks: dict[int, str] = {}
        """Nodes whose new disk is not known to hold everything again."""
        self.network.add(Host("operator", lambda asker, request, reply: None, lambda: True))
        self.operator = Client(self.ensemble, self.network, "operator", lambda what: None, lambda do: do())
        self.elector = Elector(self.world, self.ensemble, self.nodes, self.operator)
        self.reassigner = Reassigner(self.world, self.ensemble, self.nodes, self.operator)

    def go(self) -> None:
        self.operator.start()
        for node in self.nodes:
            node.start()
        self.world.at(START_MS + 500, lambda: self._make_topic("orders", self.world.between(1, 3)))
        if self.weather.hasty:
            self.world.at(START_MS + 600, lambda: self._make_topic(HASTY, 1))
        if self.ids:
            for topic, partitions in ((TRANSACTIONS, ID_SHARDS), *DATA_TOPICS.items()):
                self._make_later(topic, partitions)
            producers = self.transactional
            self.world.at(START_MS + 1_500, lambda: producers.start(self.ids, self.weather.levels))
            self.world.at(START_MS + 1_500, self.checks.look)
        if self.weather.groups:
            self._make_groups()
        elif self.checks.positions is None:
            for number in range(2):
                for topic in (OFFSETS, LEDGER):
                    self._client(TopicPartition(topic, number))
        self.world.after(2_000 + self.world.between(0, self.weather.fault_every_ms), self._weather)
        self.world.run(START_MS + self.weather.lasts_ms, self.checkers.look)
        self._heal()
        self.transactional.close()
        quiet_ms = max(START_MS + self.weather.lasts_ms, self.thawed_ms) + QUIET_MS
        self.world.run(quiet_ms, self.checkers.look)
        if self.weather.workers:
            # Of a coordinator that was lost members may be kept for as long, with the inputs that they own (CL-G7).
            longest_ms = quiet_ms + LEAST_FIRST_SESSION_MS + QUIET_MS
            self.world.run(longest_ms, self.checkers.look, self.transactional.consumed)
            quiet_ms = self.world.now_ms
        for each in (*self.producers, *self.readers, *chain(*self.history.members.values())):
            each.stopped = True
        self.world.run(quiet_ms + 4_000, self.checkers.look)
        self._hear_of_the_last_move()
        self._is_well()
        self.elector.end()
        self.reassigner.end()
        self.checkers.elections.end(self.ensemble.committed, self.nodes)
        self._groups_are_well()
        if self.ids:
            self.checks.end()
        self.checkers.end()
        if self.world.violations:
            raise Violated("\n".join(self.world.violations))

    def _make_groups(self) -> None:
        for number in range(self.weather.groups):
            group = f"g{number}"
            kind = (ConsumerMember, ClassicMember)[number % 2]
            for each in range(self.world.between(2, 3)):
                kind(self.world, self.network, self.nodes, group, each, self.history).start()
            Auditor(self.world, self.network, self.nodes, group, self.history).start()

    def _client(self, place: TopicPartition) -> None:
        number = len(self.producers)
        producer = Producer(self.world, self.network, self.nodes, f"p{number}", place, self.promises)
        reader = Reader(self.world, self.network, self.nodes, f"r{number}", place, self.promises)
        self.producers.append(producer)
        self.readers.append(reader)
        producer.start()
        reader.start()

    def _make_later(self, name: str, partitions: int) -> None:
        self.world.at(START_MS + 700, lambda: self._make_topic(name, partitions))

    def _make_topic(self, name: str, partitions: int) -> None:
        rng = self.world.rng
        ids = [node.id for node in self.nodes]
        made = tuple(ReplicaAssignment(tuple(rng.sample(ids, 3))) for _ in range(partitions))
        configs = {"min.insync.replicas": "2"} | ({"flush.messages": "1000"} if name == HASTY else {})
        topic = ClusterTopic(name, rng.randbytes(16), made, configs)

        def written(outcome: object) -> None:
            if isinstance(outcome, Exception):
                self.world.after(500, lambda: self._make_topic(name, partitions))
            else:
                self.topics += 1
                plain = name not in DATA_TOPICS and name != TRANSACTIONS
                if plain and not any(each.place.topic == name for each in self.producers):
                    for number in range(partitions):
                        self._client(TopicPartition(name, number))

        self.operator.multi([Create(f"{TOPICS}/{name}", topic)], written)

    # Weather.

    def _weather(self) -> None:
        if self.world.now_ms >= START_MS + self.weather.lasts_ms:
            return
        kind = self.world.rng.choice(self.weather.kinds)
        FAULTS[kind](self)
        self.world.after(self.world.between(1, 2 * self.weather.fault_every_ms), self._weather)

    def any_node(self, *, alive: bool = True) -> SimNode | None:
        able = [node for node in self.nodes if node.alive == alive]
        return self.world.rng.choice(able) if able else None

    def kill(self, *, power: bool = False, back_ms: int | None = None) -> None:
        """Power that takes records with it is a lost disk as well: not a second one at once."""
        node = self.any_node()
        power = power and not (self.weather.hasty and self._disks_not_whole())
        if node is not None:
            self.down(node, power=power, back_ms=back_ms)

    def down(self, node: SimNode, *, power: bool = False, back_ms: int | None = None) -> None:
        self.world.census["power" if power else "kill"] += 1
        node.kill(power=power)
        wait_ms = self.world.between(50, 3 * SESSION_MS) if back_ms is None else back_ms
        self._start_after(node, wait_ms)

    def _start_after(self, node: SimNode, wait_ms: int) -> None:
        life = node.life
        self.world.after(wait_ms, lambda: node.start() if node.life == life and not node.alive else None)

    def freeze(self) -> None:
        node = self.any_node()
        if node is not None:
            self.world.census["freeze"] += 1
            for_ms = self.world.between(SESSION_MS // 10, 3 * SESSION_MS)
            self.thawed_ms = max(self.thawed_ms, self.world.now_ms + for_ms)
            node.freeze(for_ms)

    def cut(self, *, both: bool) -> None:
        names = self.world.rng.sample([node.name for node in self.nodes], 2)
        self.sever(*names, both=both)

    def sever(self, left: str, right: str, *, both: bool = True) -> None:
        self.world.census["cut"] += 1
        self.world.trace(f"{left} and {right} are cut off from each other{'' if both else ', one way'}")
        self.network.sever(left, right, both=both)
        pairs = {(left, right), (right, left)} if both else {(left, right)}
        self.world.after(self.world.between(100, 3 * SESSION_MS), lambda: self.network.cut.difference_update(pairs))

    def cut_from_zookeeper(self) -> None:
        node = self.any_node()
        if node is not None:
            left, right = self.world.rng.sample([node.name, NAME], 2)
            self.sever(left, right, both=self.world.chance(0.7))

    def cut_from_client(self) -> None:
        """A client's requests, its answers, or both are lost between it and one node."""
        node = self.any_node()
        clients = [each.name for each in (*self.producers, *self.readers, *chain(*self.history.members.values()))]
        if node is not None and clients:
            left, right = self.world.rng.sample([node.name, self.world.rng.choice(clients)], 2)
            self.sever(left, right, both=self.world.chance(0.5))

    def lose_disk(self) -> None:
        """At most RF - min at once: the next only when the copies on the last new disk are in sync again."""
        if self._disks_not_whole() or any(node.disk.unclean or not node.alive for node in self.nodes):
            return
        node = self.any_node()
        if node is None or self._has_the_only_copy(node.id):
            return
        self.world.census["disk"] += 1
        node.kill()
        node.lose_disk()
        self.new_disks[node.id] = node.disk.directory
        life = node.life
        self.world.after(
            self.world.between(50, 2 * SESSION_MS),
            lambda: node.start() if node.life == life and not node.alive else None,
        )

    def _has_the_only_copy(self, node_id: int) -> bool:
        """A topic that was made while its other replicas were away has one that counts: nobody can stand in for it."""
        znodes = self.ensemble.committed.nodes
        states = (each.data for path, each in znodes.items() if path.endswith("/state"))
        # Where one in sync is enough it may have the only copy before anybody has written so.
        orders = znodes.get(f"{TOPICS}/orders")
        one_is_enough = orders is not None and orders.data.configs.get("min.insync.replicas") == "1"
        return one_is_enough or any({*state.isr, *state.elr} == {node_id} for state in states)

    def _disks_not_whole(self) -> bool:
        for path, znode in self.ensemble.committed.nodes.items():
            if path.endswith("/state"):
                state = znode.data
                name, number = path.split("/")[3], int(path.split("/")[5])
                topic = self.ensemble.committed.nodes.get(f"{TOPICS}/{name}")
                if topic is None:
                    continue
                for node_id, directory in self.new_disks.items():
                    assigned = node_id in topic.data.partitions[number].replicas
                    known = state.directories.get(node_id, "").partition(UNCLEAN_LIFE)[0]
                    if assigned and (node_id not in state.isr or known != directory):
                        return True
        self.new_disks.clear()
        return False

    def zookeeper_away(self) -> None:
        if not self.ensemble.away:
            self.world.census["zookeeper away"] += 1
            self.world.trace("zookeeper is away")
            self.ensemble.leave()
            self.world.after(self.world.between(100, 3 * SESSION_MS), self.ensemble.come_back)

    def slow(self) -> None:
        before = self.network.slow_ms
        self.network.slow_ms = self.world.between(20, 400)
        self.world.after(self.world.between(500, 5_000), lambda: setattr(self.network, "slow_ms", min(before, 20)))

    def lossy(self) -> None:
        self.network.lost = self.world.rng.uniform(0.01, 0.2)
        self.world.after(self.world.between(500, 5_000), lambda: setattr(self.network, "lost", 0.0))

    def break_log(self) -> None:
        """One log of one node fails for a while; it works again by itself, or the node has to start again."""
        node = self.any_node()
        if node is None or not node.disk.models or self.new_disks or any(each.disk.failing for each in self.nodes):
            return
        if not (places := [place for place in sorted(node.disk.models) if place.topic != HASTY]):
            return
        place = self.world.rng.choice(places)
        self.world.census["broken log"] += 1
        self.world.trace(f"{node.name}: {place} cannot be written any more")
        node.disk.failing.add(place)
        self.world.after(self.world.between(1_000, 8_000), lambda: self._mend_log(node, place))

    def _mend_log(self, node: SimNode, place: TopicPartition) -> None:
        node.disk.failing.discard(place)
        if node.alive and self.world.chance(0.5):
            self.down(node, back_ms=100)

    def fill_disk(self) -> None:
        """One takes nothing more for a while, or no more than it takes to lead; what is on it can be read."""
        node = self.any_node()
        if node is None or self.new_disks or node.disk.room < PLENTY:
            return
        self.world.census["disk full"] += 1
        node.disk.room = self.world.rng.choice((0, ROOM_TO_LEAD))
        self.world.trace(f"{node.name}: the disk has room for {node.disk.room} bytes")
        self.world.after(self.world.between(500, 6_000), lambda: setattr(node.disk, "room", PLENTY))

    def delete_topic(self) -> None:
        if f"{TOPICS}/orders" not in self.ensemble.committed.nodes:
            return
        self.world.census["topic deleted"] += 1
        self.operator.multi([Create(f"{DELETED}/orders", None)], lambda _: None)
        self._make_again()

    def _make_again(self) -> None:
        if f"{TOPICS}/orders" in self.ensemble.committed.nodes:
            self.world.after(300, self._make_again)
            return
        partitions = sum(each.place.topic == "orders" for each in self.producers)
        self._make_topic("orders", max(partitions, 1))

    def change_settings(self) -> None:
        """Not while a lost disk is missed: another minimum takes the copies that stand in for it out of the eligible
        ones (CL-C5), and nobody has those records any more who may lead."""
        znode = self.ensemble.committed.nodes.get(f"{TOPICS}/orders")
        if znode is None or self._disks_not_whole():
            return
        topic = replace(znode.data, configs={"min.insync.replicas": str(self.world.between(1, 3))})
        self.operator.multi([Put(f"{TOPICS}/orders", topic, znode.version)], lambda _: None)

    def all_power(self) -> None:
        """The whole house goes dark."""
        if self.new_disks:
            return
        self.world.census["all power"] += 1
        for node in self.nodes:
            if node.alive:
                self.down(node, power=True)

    def _begun_in_a_log(self) -> None:
        """A transaction has its first record in a log."""
        if self.weather.dark_rate and self.transactional.faulty and self.world.chance(self.weather.dark_rate):
            self.world.census["all power, a transaction begins"] += 1
            self.world.after(self.world.between(0, 12), self._go_dark)

    def _marker_late(self, node: SimNode) -> None:
        """A marker is held up on its way from a coordinator."""
        if self.weather.stall_rate and self.transactional.faulty and self.world.chance(self.weather.stall_rate):
            self.world.census["coordinators stalled"] += 1
            for_ms = SESSION_MS + self.world.between(700, 2_000)
            self.thawed_ms = max(self.thawed_ms, self.world.now_ms + for_ms)
            self.world.after(0, lambda: node.freeze(for_ms))

    def _positions_passed(self, node: SimNode) -> None:
        """A node has decided something about positions in a transaction, which nobody else has heard of."""
        if self.weather.move_rate and self.transactional.faulty and self.world.chance(self.weather.move_rate):
            self.world.census["coordinators of groups gone behind positions"] += 1
            self.world.after(self.world.between(0, 40), lambda: self._goes(node))

    def _goes(self, node: SimNode) -> None:
        if not node.alive or node.frozen:
            return
        if self.world.chance(0.5):
            self.down(node, power=self.world.chance(0.5), back_ms=self.world.between(50, 2_000))
        else:
            for_ms = SESSION_MS + self.world.between(200, 2_000)
            self.thawed_ms = max(self.thawed_ms, self.world.now_ms + for_ms)
            node.freeze(for_ms)

    def _go_dark(self) -> None:
        for node in self.nodes:
            if node.alive:
                self.down(node, power=True, back_ms=self.world.between(50, 300))

    def drain(self) -> None:
        """It stands in ZooKeeper, for whoever is the controller."""
        node = self.any_node()
        if node is None or not self.operator.connected:
            return
        self.world.census["drain"] += 1
        self.operator.multi([Create(f"{DRAINED}/{node.id}", None)], lambda _: None)
        self.world.after(self.world.between(500, 5_000), lambda: self._undrain(node))

    def _undrain(self, node: SimNode) -> None:
        def ended(outcome: object) -> None:
            if isinstance(outcome, ConnectionLoss):
                self.world.after(RETRY_MS, lambda: self._undrain(node))

        self.operator.multi([Delete(f"{DRAINED}/{node.id}")], ended)

    def elect(self) -> None:
        self.elector.ask(unclean=self.weather.asked)

    # The end.

    def _heal(self) -> None:
        self.world.trace("all faults end")
        self.network.mend()
        self.network.lost, self.network.slow_ms = 0.0, 8
        if self.ensemble.away:
            self.ensemble.come_back()
        for node in self.nodes:
            self._undrain(node)
            node.disk.failing, node.disk.room = set(), PLENTY
            if not node.alive:
                node.start()

    def _hear_of_the_last_move(self) -> None:
        """Leaders are balanced every now and then: who is to lead since a moment ago has to hear of it first."""
        end_ms = self.world.now_ms
        while self.world.now_ms < self.checkers.written_ms + HEARD_MS:
            end_ms += HEARD_MS
            self.world.run(end_ms, self.checkers.look)

    def _groups_are_well(self) -> None:
        """CL-S14: all groups are stable."""
        for group, members in self.history.members.items():
            if group not in self.history.settled:
                has = {each.name: (each.generation, sorted(each.owned), each.stable) for each in members}
                self.world.violated("Liveness", f"group {group} has not settled: {has}")
            else:
                self.world.census["groups settled"] += 1

    def _may_have_none(self, place: TopicPartition, topic_id: bytes, state: PartitionState) -> None:
        """Of a topic made when all that seemed alive was a node that had just lost its disk nobody has anything."""
        eligible = [each for each in (*state.isr, *state.elr) if self.checkers.counts(each, place, state)]
        if eligible or self.promises.acked.get((place, topic_id)):
            self.world.violated("Liveness", f"{place} has no leader: {state}")
        self.world.census["partitions that nobody ever had"] += 1

    def _is_well(self) -> None:
        """CL-S14: every unit has a leader, everybody is in sync, everything is committed."""
        world = self.world
        states = {path: znode for path, znode in self.ensemble.committed.nodes.items() if path.endswith("/state")}
        topics = [path for path in self.ensemble.committed.nodes if path.startswith(TOPICS) and path.count("/") == 3]
        for path in topics:
            for number in range(len(self.ensemble.committed.nodes[path].data.partitions)):
                if f"{path}/partitions/{number}/state" not in states:
                    world.violated("Liveness", f"{path}-{number} has no state")
        if not states:
            world.violated("Liveness", "no states at all")
        for path, znode in states.items():
            state = znode.data
            name, number = path.split("/")[3], int(path.split("/")[5])
            place = TopicPartition(name, number)
            topic = self.ensemble.committed.nodes[f"{TOPICS}/{name}"].data
            replicas = topic.partitions[number].replicas
            if state.leader < 0:
                self._may_have_none(place, topic.topic_id, state)
                continue
            if set(state.isr) != set(replicas):
                world.violated("Liveness", f"{place}: in sync are {state.isr} of {replicas}; {state}")
            led = self.nodes[state.leader - 1].replicas.led.get(place)
            if led is None:
                world.violated("Liveness", f"{place}: node {state.leader} does not lead it")
            elif led.leader.passed_by:
                world.violated("Liveness", f"{place}: node {state.leader} takes itself to be passed by")
            elif led.log.high_watermark != led.log.end:
                world.violated("Liveness", f"{place}: {led.log.high_watermark} of {led.log.end} is committed")
        assert LAG_MS < QUIET_MS


FAULTS: dict[str, Callable[[Run], None]] = {
    "kill": Run.kill,
    "power": lambda run: run.kill(power=True),
    "freeze": Run.freeze,
    "cut": lambda run: run.cut(both=True),
    "one way": lambda run: run.cut(both=False),
    "zookeeper cut": Run.cut_from_zookeeper,
    "client cut": Run.cut_from_client,
    "disk": Run.lose_disk,
    "away": Run.zookeeper_away,
    "bounce": lambda run: run.kill(back_ms=run.world.between(10, 300)),
    "slow": Run.slow,
    "lossy": Run.lossy,
    "broken log": Run.break_log,
    "full": Run.fill_disk,
    "delete topic": Run.delete_topic,
    "settings": Run.change_settings,
    "all power": Run.all_power,
    "drain": Run.drain,
    "elect": Run.elect,
    "reassign": lambda run: run.reassigner.ask(),
}


def run_seed(seed: int, weather: Weather | None = None, *, keep_trace: bool = False) -> Result:
    began = time.perf_counter()
    run = Run(seed, weather or Weather(nodes=3 + seed % 3), keep_trace=keep_trace)
    result = Result(seed)
    try:
        run.go()
    except Violated as error:
        result.violation = str(error)
    result.events, result.seconds = run.world.events, time.perf_counter() - began
    result.node_seconds = (run.world.now_ms - START_MS) / 1_000 * len(run.nodes)
    result.census, result.lines, result.digest = dict(run.world.census), run.world.lines, run.world.digest
    return result
