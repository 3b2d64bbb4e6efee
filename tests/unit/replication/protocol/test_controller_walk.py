"""Committed records outlive whatever happens to nodes, disks, writes and controllers; and what the rules keep out of it
is seen to break it, each by a controller, or a ZooKeeper, that leaves one rule out (docs/design/cluster.md, "Proof by
simulation")."""

from dataclasses import replace
from typing import Any

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import ClusterNode, TopicPartition
from muster.coordinator.replication.protocol.controller import elections
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller.controller import Controller
from muster.coordinator.replication.protocol.controller.controller_state import NodeRegistry, RegistrationChanges
from muster.coordinator.replication.protocol.controller.controller_term import AdmitNode, ConfirmNode, ReviewMark
from muster.coordinator.replication.protocol.controller.elections import ReplicaStanding
from tests.support.controller_story import Store
from tests.support.controller_walk import Lost, walk

SEEDS = 40
MOST_SEEDS = 500


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_what_is_committed_is_kept(first: int) -> None:
    walks = [walk(seed) for seed in range(first, first + 10)]
    assert sum(each.commits for each in walks) > 100
    assert sum(each.crashes for each in walks) > 50


def caught(seeds: range = range(MOST_SEEDS), **parts: Any) -> str:
    """What the first seed that catches a mutant says; fails if none does."""
    for seed in seeds:
        try:
            walk(seed, **parts)
        except Lost as lost:
            return str(lost)
    pytest.fail(f"{seeds} seeds did not catch it")


class TellsFirst(Controller):
    """Tells of a state before it is written (CL-C1)."""

    def _decide(self) -> None:
        super()._decide()
        if self.flight is not None:
            publisher = self.term.controller_state.publisher
            for unit, state in self.flight.states.items():
                view = publisher.topics[unit.topic].partitions.get(unit.partition)
                if view is not None:
                    publisher.staged_partitions[unit] = view._replace(
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=state.isr,
                        partition_epoch=state.partition_epoch,
                    )
            publisher.publish(self._next_sequence())


class RewritesDirectories(Controller):
    """A node that returns is known by the directory it has now (CL-C6)."""

    def _pass(self, mark: ReviewMark) -> None:
        super()._pass(mark)
        controller_state = self.term.controller_state
        if isinstance(mark, AdmitNode) and mark.node in controller_state.nodes.live:
            for unit in controller_state.holds.get(mark.node, ()):
                if (state := controller_state.states.get(unit)) is not None:
                    known = {**state.directories, mark.node: controller_state.nodes.live[mark.node].directory}
                    controller_state.states[unit] = replace(state, directories=known)


class KnowsEverybody(Controller):
    """A new controller takes leaders for what they were, though they may have bounced (CL-C7)."""

    def _maybe_ready(self) -> None:
        super()._maybe_ready()
        for node_id in list(self.term.controller_state.nodes.unsure):
            self._pass(ConfirmNode(node_id))


class Unchecked(Store):
    """Neither the controller's epoch nor the cluster's version is checked (CL-Z5)."""

    def refusal(self, write: Any) -> ev.WriteFailure | None:
        mine = write._replace(epoch_version=self.epoch, cluster_version=self.version.version)
        return super().refusal(mine)


class NotInOrder(Store):
    """The cluster's version is not checked: what was believed lost is done later, among other writes."""

    def refusal(self, write: Any) -> ev.WriteFailure | None:
        return super().refusal(write._replace(cluster_version=self.version.version))


@pytest.mark.parametrize(
    ("parts", "first", "said"),
    [
        ({"machine": TellsFirst}, 0, "not written"),
        ({"machine": RewritesDirectories}, 0, "lacks what was committed"),
        ({"machine": KnowsEverybody}, 0, "is led by node and registration"),
        ({"store": Unchecked}, 0, "of controller epoch"),
        ({"store": NotInOrder}, 70, ""),
    ],
    ids=["state told before it is written", "dirs rewritten", "bounced unseen", "epoch not checked", "no order"],
)
def test_a_rule_that_is_left_out_is_missed(parts: dict[str, Any], first: int, said: str) -> None:
    assert said in caught(range(first, first + MOST_SEEDS), **parts)


def test_directory_id_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = NodeRegistry.standing

    def blind(
        self: NodeRegistry, unit: TopicPartition, replicas: tuple[int, ...], known: Any, **others: Any
    ) -> ReplicaStanding:
        return honest(self, unit, replicas, {}, **others)

    monkeypatch.setattr(NodeRegistry, "standing", blind)
    assert "lacks what was committed" in caught()


def test_bounced_node_not_treated_as_dead_first(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = NodeRegistry.seen

    def trusting(self: NodeRegistry, seen: dict[int, ClusterNode]) -> RegistrationChanges:
        for node in seen.values():
            if node.id in self.live:
                self.live[node.id] = node
                self.highest[node.id] = node.epoch
        return honest(self, seen)

    monkeypatch.setattr(NodeRegistry, "seen", trusting)
    assert "is led by node and registration" in caught()


def test_last_in_sync_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "retained_isr", lambda state, now: ())
    assert "ISR ()" in caught()
