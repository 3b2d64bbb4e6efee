"""What must hold in a cluster after every event, CL-S1 to CL-S15 (docs/design/cluster.md, "Proof by simulation")."""

from collections import Counter, deque
from itertools import chain, pairwise

from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    OFFSETS,
    ClusterTopic,
    PartitionState,
    TopicPartition,
    halves_of,
)
from muster.coordinator.replication.protocol.controller.controller_state import UNCLEAN_LIFE, directory_token
from tests.sim.replication.clients import Promises
from tests.sim.replication.disk import HASTY
from tests.sim.replication.elections import Costs, Elections, copied
from tests.sim.replication.node import SimNode
from tests.sim.replication.watching import DELETED, TOPICS, state_path
from tests.sim.replication.zookeeper import Ensemble
from tests.sim.world import World

STORM, STORM_MS = 20, 1_000
"""So many elections of one unit within that time follow from each other, and never end."""

DEEP_EVERY = 250
"""Events between two looks at all records of all logs."""


class Checkers:
    """`look` after each event; `end` when all is quiet."""

    def __init__(
        self, world: World, ensemble: Ensemble, nodes: list[SimNode], promises: Promises, *, unclean: bool = False
    ) -> None:
        """unclean: records may be lost by elections of any unit, not only of those that are flushed loosely."""
        self.world = world
        self.unclean = unclean
        self.ensemble = ensemble
        self.nodes = nodes
        self.promises = promises
        self.topics: dict[bytes, ClusterTopic] = {}
        self.gone: set[bytes] = set()
        self.frontier: dict[tuple[TopicPartition, bytes], int] = {}
        """How far leaders have shown a log to be committed."""
        self.written_ms = 0
        """When a state was written last."""
        self.elections = Elections(world)
        self.costs = Costs(world, promises)
        self._zxid = 0
        self._states: dict[str, PartitionState] = {}
        self._elected: dict[TopicPartition, deque[int]] = {}
        """When the last elections of each were."""
        self._led: dict[tuple[TopicPartition, bytes, int], int] = {}
        self._seen: dict[int, dict[TopicPartition, tuple[object, ...]]] = {}
        """By node, what its leaders were at the last look: most looks find them as they were."""
        self._shown: dict[tuple[int, int, tuple[TopicPartition, bytes], int], int] = {}
        self._deleted: dict[int, int] = {}
        self._looks = 0
        self._acted: dict[int, SimNode] = {}
        """Nodes that did something since the last look."""
        for node in nodes:
            node.acted = self._to_look_at
        self._leads: dict[int, frozenset[TopicPartition]] = {}
        """By node, the shards that it took itself to lead then."""
        self._twice: frozenset[TopicPartition] = frozenset()
        """Those of several."""

    def look(self) -> None:
        """What has done nothing since it was looked at last is as it was; but leases end by the clock."""
        if self._zxid < len(self.ensemble.history):
            self._read_zookeeper()
        if self._acted:
            acted, self._acted = self._acted, {}
            for node in acted.values():
                if node.alive:
                    self._leaders(node)
                    if node.disk.deleted:
                        self._deletions(node)
                    self._shards(node)
                    if node.disk.given:
                        self.costs.look(node)
        if self._twice:
            self._one_lease()
        self._looks += 1
        if self._looks % DEEP_EVERY == 0:
            self.logs_match()

    def _to_look_at(self, node: SimNode) -> None:
        self._acted[node.id] = node

    def end(self) -> None:
        self.logs_match()
        for node in self.nodes:
            for unit in node.replicas.leaders:
                self._has_all(node, unit, "at the end")

    # 6, 7, 8: what is written.

    def _read_zookeeper(self) -> None:
        """Every transaction since the last look."""
        while self._zxid < len(self.ensemble.history):
            changed = self.ensemble.history[self._zxid]
            self._zxid += 1
            for path, znode in changed.items():
                if path.startswith(TOPICS + "/") and path.count("/") == 3:
                    name = path.rpartition("/")[2]
                    self.gone |= {topic_id for topic_id, topic in self.topics.items() if topic.name == name}
                    if znode is not None:
                        self.topics[znode.data.topic_id] = znode.data
                        self.gone.discard(znode.data.topic_id)
                elif path.endswith("/state"):
                    if znode is None:
                        self._states.pop(path, None)
                    else:
                        self._state(path, znode.data, znode.version)
            self.elections.written(changed)

    def _state(self, path: str, state: PartitionState, version: int) -> None:
        before = self._states.get(path)
        self._states[path] = state
        self.written_ms = self.world.now_ms
        name, number = path.split("/")[3], int(path.split("/")[5])
        place = TopicPartition(name, number)
        topic = next((each for i, each in self.topics.items() if each.name == name and i not in self.gone), None)
        if set(state.isr) & set(state.elr) or not state.isr:
            self._violated("IsrSubset", f"{place}: isr {state.isr}, elr {state.elr}")
        if topic is not None:
            replicas = topic.partitions[number].replicas
            if not set(state.isr) | set(state.elr) <= set(replicas):
                self._violated("IsrSubset", f"{place}: isr {state.isr}, elr {state.elr} of replicas {replicas}")
        if before is None:
            return
        if state.leader_epoch < before.leader_epoch or state.controller_epoch < before.controller_epoch:
            self._violated("EpochsRise", f"{place}: {before} was followed by {state}")
        if state.leader_epoch > before.leader_epoch:
            self._calm(place)
        if state.leader != before.leader and state.leader_epoch == before.leader_epoch:
            self._violated("EpochsRise", f"{place}: another leader in the same epoch: {before}, {state}")
        self.elections.followed(place, before, state)
        if topic is not None:
            if state.unclean_epoch > before.unclean_epoch:
                self._unclean(place, topic, state)
            self._members_have_all(place, topic, state)

    def _calm(self, place: TopicPartition) -> None:
        elected = self._elected.setdefault(place, deque(maxlen=STORM))
        elected.append(self.world.now_ms)
        if len(elected) == STORM and elected[-1] - elected[0] < STORM_MS:
            self._violated("Calm", f"{place}: {STORM} elections in {elected[-1] - elected[0]} ms")

    def _unclean(self, place: TopicPartition, topic: ClusterTopic, state: PartitionState) -> None:
        self.world.census["unclean election"] += 1
        if place.topic != HASTY and not self.unclean:
            self._violated("AckedNeverLost", f"{place}: an unclean election that nobody allowed: {state}")
        self.promises.unclean.setdefault((place, topic.topic_id), {})[state.unclean_epoch] = None
        self.frontier[place, topic.topic_id] = 0

    def counts(self, member: int, place: TopicPartition, state: PartitionState) -> bool:
        """Whether what lies on a node's disk is what the state speaks of: not where it is a new one, or has lost power
        with records in memory since it was in sync."""
        node, known = self._node(member), state.directories.get(member)
        if known is None:
            return True
        mine = directory_token(node.registration(), loose=place.topic == HASTY)
        return known == mine or (mine == node.disk.directory and known.partition(UNCLEAN_LIFE)[0] == mine)

    def _members_have_all(self, place: TopicPartition, topic: ClusterTopic, state: PartitionState) -> None:
        """CL-S6: who is in sync, or eligible, has everything committed; on the disk by which it is known."""
        key = (place, topic.topic_id)
        frontier = self.frontier.get(key, 0)
        if self._is_going(place.topic):
            return
        for member in (*state.isr, *state.elr):
            disk = self._node(member).disk
            held = disk.models.get(place)
            if not self.counts(member, place, state):
                continue
            if held is None or held[0] != topic.topic_id:
                if frontier > 0:
                    self._violated("IsrHasAll", f"{place}: {member} has no copy; {frontier} is committed; {state}")
            elif disk.kept(place) < frontier:
                self._violated(
                    "IsrHasAll", f"{place}: {member} keeps {disk.kept(place)}, {frontier} is committed; {state}"
                )

    # 1, 2, 4, 5: leaders.

    def _leaders(self, node: SimNode) -> None:
        seen = self._seen.setdefault(node.id, {})
        for unit, leader in node.replicas.leaders.items():
            led = node.replicas.led[unit]
            now = (led, leader, leader.epoch, *[half.high_watermark for half in leader.halves])
            if seen.get(unit) == now:
                continue
            seen[unit] = now
            key = (unit, led.topic_id, leader.epoch)
            if key not in self._led:
                self._led[key] = node.id
                self.world.census["led"] += 1
                self._begins(node, unit, leader.epoch)
                self._has_all(node, unit, f"leads in epoch {leader.epoch}")
            elif self._led[key] != node.id:
                self._violated("OneLeader", f"{unit} epoch {leader.epoch}: {self._led[key]} and {node.id}")
            for half, place in zip(leader.halves, halves_of(unit), strict=True):
                shown = (node.id, node.life, (place, led.topic_id), leader.epoch)
                before = self._shown.get(shown, -1)
                if half.high_watermark < before:
                    self._violated("WatermarkRises", f"{place}: {before}, then {half.high_watermark} at {node.name}")
                if half.high_watermark > before:
                    self._shown[shown] = half.high_watermark
                    log = (place, node.replicas.led[place].topic_id)
                    if leader.epoch < max(self.promises.unclean.get(log, ()), default=NO_EPOCH):
                        continue  # what it shows may be lost by now
                    if before >= 0:
                        self._below_ends(node, place, led.topic_id, half.high_watermark, leader.isr)
                    self.frontier[log] = max(self.frontier.get(log, 0), half.high_watermark)

    def _begins(self, node: SimNode, unit: TopicPartition, epoch: int) -> None:
        """What the first leader after an unclean election has is what is left."""
        for place in halves_of(unit):
            if (led := node.replicas.led.get(place)) is None:
                continue
            for elected, had in self.promises.unclean.get((place, led.topic_id), {}).items():
                if elected <= epoch and had is None:
                    left = copied(node.disk.models[place][1])
                    self.promises.unclean[place, led.topic_id][elected] = left

    def _below_ends(self, node: SimNode, place: TopicPartition, topic_id: bytes, to: int, isr: tuple[int, ...]) -> None:
        """CL-S5: at the moment it moves, every member of the committed in-sync set keeps all below."""
        znode = self.ensemble.committed.nodes.get(state_path(place))
        if znode is None or topic_id in self.gone:
            return
        if self._is_going(place.topic):
            return  # a follower that has heard of it has no copy any more, and a leader that has not may have its word
        state: PartitionState = znode.data
        replicas = self.topics[topic_id].partitions[place.partition].replicas
        for member in isr:
            disk = self._node(member).disk
            if member not in replicas or not self.counts(member, place, state):
                continue  # Where it is written that it is to go it has none; who is left had all by then.
            kept = disk.kept(place) if place in disk.models else None
            if kept is None or kept < to:
                self._violated("WatermarkBelowEnds", f"{place}: {to} at {node.name}, but {member} keeps {kept}")

    def _has_all(self, node: SimNode, unit: TopicPartition, when: str) -> None:
        """CL-S1: what was acknowledged is in the log of every later leader."""
        for place in halves_of(unit):
            led = node.replicas.led.get(place)
            if led is None:
                continue
            key = (place, led.topic_id)
            model = node.disk.models[place][1]
            for promised, kind in ((self.promises.acked, "acknowledged"), (self.promises.read, "read")):
                for offset, (value, epoch) in promised.get(key, {}).items():
                    if offset < model.start or epoch > led.leader.epoch:
                        continue  # who wakes up as a leader of long ago need not have what came later
                    entry = model.records[offset - model.start] if offset < model.end else None
                    if self.promises.is_lost(key, offset, value, epoch, led.leader.epoch):
                        continue
                    if entry is None or (entry.value if kind == "acknowledged" else entry) != value:
                        self._violated(
                            "AckedNeverLost",
                            f"{place} {offset}: {value!r} was {kind}; {node.name} {when} and has {entry}",
                        )
                        return

    def _shards(self, node: SimNode) -> None:
        leads = frozenset([unit for unit in node.replicas.leaders if unit.topic == OFFSETS])
        if leads != self._leads.get(node.id):
            self._leads[node.id] = leads
            count = Counter(chain.from_iterable(self._leads.values()))
            self._twice = frozenset(unit for unit, times in count.items() if times > 1)

    def _one_lease(self) -> None:
        """CL-S9: no two nodes would answer for one shard. Only who takes itself to lead it may."""
        for unit in self._twice:
            leaders = [node for node in self.nodes if node.alive and not node.frozen]
            names = [node.name for node in leaders if node.lease_holds(unit)]
            self.world.census["leases beside another leader"] += 1
            if len(names) > 1:
                self._violated("OneCoordinator", f"{unit}: {names} hold a lease")

    # 3, 13: logs.

    def logs_match(self) -> None:
        """CL-S3: what two replicas have at one offset in one epoch is the same, and all before it."""
        for topic_id, topic in self.topics.items():
            if topic_id in self.gone:
                continue
            for number in range(len(topic.partitions)):
                place = TopicPartition(topic.name, number)
                held = [node.disk.models.get(place) for node in self.nodes]
                models = [each[1] for each in held if each is not None and each[0] == topic_id]
                for one, other in pairwise(models):
                    start, end = max(one.start, other.start), min(one.end, other.end)
                    ours = one.records[start - one.start : end - one.start]
                    theirs = other.records[start - other.start : end - other.start]
                    if ours == theirs:
                        continue
                    parted = False
                    for offset, (left, right) in enumerate(zip(ours, theirs, strict=True), start):
                        if left != right:
                            parted = True
                            if left.epoch == right.epoch:
                                self._violated("LogsMatch", f"{place} {offset}: {left} and {right}")
                                return
                        elif parted:
                            self._violated("LogsMatch", f"{place} {offset}: the same, but not what is before")
                            return

    def _deletions(self, node: SimNode) -> None:
        """CL-S13: nothing that is assigned here, or unknown, is deleted."""
        done = self._deleted.get(id(node.disk), 0)
        for place, topic_id in node.disk.deleted[done:]:
            topic = self.topics.get(topic_id)
            if topic is None or topic_id in self.gone or self._is_going(place.topic):
                continue
            assignment, state = topic.partitions[place.partition], self._states.get(state_path(place))
            # Who is to have a copy again, and has not heard of it yet, makes it anew.
            needed = node.id not in assignment.adding or (state is not None and node.id in (*state.isr, *state.elr))
            if node.id in assignment.replicas and needed:
                self._violated("NothingRemoved", f"{node.name} deleted {place}, which is assigned to it")
        self._deleted[id(node.disk)] = len(node.disk.deleted)

    def _is_going(self, name: str) -> bool:
        """Whether the topic is to be deleted, which nodes are told before its znodes go (CL-A3)."""
        return f"{DELETED}/{name}" in self.ensemble.committed.nodes

    def _node(self, node_id: int) -> SimNode:
        return self.nodes[node_id - 1]

    def _violated(self, checker: str, sentence: str) -> None:
        self.world.violated(checker, sentence)
