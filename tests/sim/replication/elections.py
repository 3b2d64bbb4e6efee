"""What must hold of elections: each is written whole, none is left over, and what an unclean one cost is counted."""

from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    NO_NODE_ID,
    OFFSETS,
    PartitionState,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller.controller import Controller
from tests.sim.replication.clients import Promises
from tests.sim.replication.disk import Given
from tests.sim.replication.logs import LogModel
from tests.sim.replication.node import SimNode
from tests.sim.replication.watching import ASKED, state_path
from tests.sim.replication.zookeeper import Tree, Znode
from tests.sim.world import World


def copied(model: LogModel) -> LogModel:
    """What a log has now."""
    left = LogModel()
    left.start, left.records = model.start, list(model.records)
    return left


class Elections:
    def __init__(self, world: World) -> None:
        self._world = world

    def written(self, changed: dict[str, Znode | None]) -> None:
        """The halves of a shard are written together, and are equal: nobody elects one of them."""
        for path, znode in changed.items():
            if znode is None or not path.endswith("/state"):
                continue
            topic, number = path.split("/")[3], int(path.split("/")[5])
            if topic not in (OFFSETS, LEDGER):
                continue
            other = changed.get(state_path(TopicPartition(LEDGER if topic == OFFSETS else OFFSETS, number)))
            if other is None or what_it_says(other.data) != what_it_says(znode.data):
                self._world.violated("HalvesAgree", f"{topic}-{number}: {znode.data}, and its other half {other}")

    def followed(self, place: TopicPartition, before: PartitionState, state: PartitionState) -> None:
        """CL-A6: a leader that lives gives way only to one that is in sync."""
        handed_over = state.cause == "preferred" and NO_NODE_ID not in (before.leader, state.leader)
        if handed_over and state.leader != before.leader:
            self._world.census["preferred leaders"] += 1
            if state.leader not in before.isr:
                self._world.violated("Handover", f"{place}: {before} was followed by {state}")

    def end(self, tree: Tree, nodes: list[SimNode]) -> None:
        """Nothing that was asked for lies there, or waits, for ever: nobody else could ask."""
        for path in ASKED.values():
            if path in tree.nodes:
                self._world.violated("ElectionsEnd", f"{path} still asks for {tree.nodes[path].data}")
        for node in nodes:
            if node.candidate.machine is not None:
                self._nothing_waits(node.candidate.machine)

    def _nothing_waits(self, machine: Controller) -> None:
        moves = machine.moves
        flying = {each: count for each, count in moves.flying.items() if count}
        if moves.wanted or moves.ahead or flying or machine.preferred.forced:
            self._world.violated(
                "ElectionsEnd",
                f"wanted {moves.wanted}, flying {flying}, ahead {moves.ahead}, forced {machine.preferred.forced}",
            )


def what_it_says(state: PartitionState) -> tuple[object, ...]:
    """All but the version of its znode."""
    return (
        state.leader, state.leader_epoch, state.isr, state.elr, dict(state.directories), state.controller_epoch,
        state.unclean_epoch, state.cause,
    )  # fmt: skip


class Costs:
    """What copies give up that was acknowledged, and what they tell the ledger of it."""

    def __init__(self, world: World, promises: Promises) -> None:
        self._world = world
        self._promises = promises
        self._seen: dict[int, int] = {}

    def look(self, node: SimNode) -> None:
        given = node.disk.given
        done = self._seen.get(id(node.disk), 0)
        self._seen[id(node.disk)] = len(given)
        for each in given[done:]:
            self._given(node, each)

    def _given(self, node: SimNode, given: Given) -> None:
        acked = self._promises.acked.get((given.place, given.topic_id), {})
        cost = [
            offset
            for offset, entry in enumerate(given.entries, given.at)
            if acked.get(offset) == (entry.value, entry.epoch)
        ]
        self._world.census["acknowledged records given up"] += len(cost)
        for offset in cost:
            if not any(each.place == given.place and each.start <= offset < each.end for each in node.undone):
                self._world.violated(
                    "CostIsCounted",
                    f"{given.place} {offset}: {node.name} gave up what was acknowledged, and told only {node.undone}",
                )
                return
