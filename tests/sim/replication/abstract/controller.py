"""A controller as small as it can be: one unit, by the rules CL-C2 to CL-C8, never away itself."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, PartitionState
from muster.coordinator.replication.protocol.leader import IsrAnswer, IsrProposal


class Registration(NamedTuple):
    epoch: int
    directory: str


class Image(NamedTuple):
    """What a node is told: everything, as of `sequence`."""

    sequence: int
    state: PartitionState
    live: Mapping[int, int]
    leaving: frozenset[int] = frozenset()


@dataclass(slots=True)
class Rules:
    """Each False is a mutant."""

    directories_count: bool = True
    directories_stay: bool = True
    bounced_is_dead_first: bool = True
    settles: bool = True
    node_epochs_count: bool = True


class Controller:
    def __init__(
        self, registered: dict[int, Registration], replicas: tuple[int, ...], min_isr: int, rules: Rules
    ) -> None:
        self.registered = registered
        self.replicas = replicas
        self.min_isr = min_isr
        self.rules = rules
        self.live: dict[int, Registration] = dict(registered)
        self.leaving: set[int] = set()
        self.sequence = 0
        first = replicas[0]
        self.state = PartitionState(
            leader=first,
            leader_epoch=0,
            isr=replicas,
            directories={node: registered[node].directory for node in replicas},
            partition_epoch=0,
        )
        self.leaders = {0: first}

    def image(self, node: int, node_epoch: int) -> Image | None:
        """CL-C7: a node whose registration was not taken in yet hears nothing."""
        at = self.live.get(node)
        if at is None or at.epoch != node_epoch:
            return None
        return Image(
            self.sequence, self.state, {node: at.epoch for node, at in self.live.items()}, frozenset(self.leaving)
        )

    def look(self) -> bool:
        """Take in who is registered: first who is gone, in a write of its own, then who has come."""
        gone = [node for node, at in self.live.items() if self.registered.get(node) != at]
        if gone and (self.rules.bounced_is_dead_first or any(node not in self.registered for node in gone)):
            for node in gone:
                del self.live[node]
            self._decide()
            return True
        come = {node: at for node, at in self.registered.items() if self.live.get(node) != at}
        if not come:
            return False
        self.live.update(come)
        if not self.rules.directories_stay:
            known = dict(self.state.directories) | {node: at.directory for node, at in come.items()}
            self.state = replace(self.state, directories=known)
        self._decide()
        return True

    def hand_over(self, to: int | None = None) -> bool:
        """CL-A6: the unit goes to the next one that is live and in sync, though its leader lives; or to that one."""
        state = self.state
        others = [node for node in state.isr if node != state.leader and self._may_lead(node)]
        if state.leader == NO_NODE_ID or not others:
            return False
        later = [node for node in others if node > state.leader]
        self._write(to or (later or others)[0], state.isr, state.directories, elected=True)
        return True

    def drain(self, node: int, *, begins: bool) -> None:
        """CL-A7: the node is about to go, or stays after all."""
        (self.leaving.add if begins else self.leaving.discard)(node)
        self.sequence += 1

    def alter(self, node: int, node_epoch: int, asked: IsrProposal) -> IsrAnswer:
        """CL-C8, in its order."""
        state = self.state
        at = self.live.get(node)
        if at is None or at.epoch != node_epoch:
            return IsrAnswer(ErrorCode.STALE_BROKER_EPOCH)
        if asked.leader_epoch > state.leader_epoch or asked.partition_epoch > state.partition_epoch:
            return IsrAnswer(ErrorCode.NOT_CONTROLLER)
        if asked.leader_epoch < state.leader_epoch:
            return IsrAnswer(ErrorCode.FENCED_LEADER_EPOCH)
        isr = asked.nodes
        present = asked.partition_epoch == state.partition_epoch
        if isr == state.isr and not (present and self.rules.settles):
            return self._granted()
        if not present:
            return IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        if isr != state.isr and not all(self._is_eligible(*member) for member in asked.isr):
            return IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
        if state.leader not in isr or node != state.leader:
            return IsrAnswer(ErrorCode.INVALID_REQUEST)
        joined = {node: self.live[node].directory for node in isr if node not in state.isr and node in self.live}
        self._write(state.leader, isr, {**state.directories, **joined}, elected=False)
        return self._granted()

    def _is_eligible(self, node: int, epoch: int) -> bool:
        at = self.live.get(node)
        return at is not None and node not in self.leaving and (at.epoch == epoch or not self.rules.node_epochs_count)

    def _granted(self) -> IsrAnswer:
        state = self.state
        return IsrAnswer(ErrorCode.NONE, state.leader_epoch, state.partition_epoch, state.isr)

    def _has_other_disk(self, node: int) -> bool:
        """By the registration it has, or had when it was last taken in."""
        at = self.registered.get(node)
        known = self.state.directories.get(node)
        return self.rules.directories_count and at is not None and known is not None and at.directory != known

    def _may_lead(self, node: int) -> bool:
        return node in self.live and not self._has_other_disk(node)

    def _decide(self) -> None:
        """CL-C2 to CL-C5 for what is live now. The image names who is live, so that it is another in any case."""
        self.sequence += 1
        state = self.state
        isr = tuple(node for node in state.isr if self._may_lead(node))
        elr = tuple(node for node in state.elr if not self._has_other_disk(node))
        leader = state.leader
        if leader not in isr:
            leader = next((node for node in self.replicas if node in isr), NO_NODE_ID)
        if leader == NO_NODE_ID:
            leader = next((node for node in self.replicas if node in elr and self._may_lead(node)), NO_NODE_ID)
            if leader != NO_NODE_ID:
                isr = (leader,)
        if leader == NO_NODE_ID:
            isr = isr or state.isr  # CL-C4: of the last ones nobody goes, for each has what was committed.
        elected = leader != state.leader
        if elected or isr != state.isr or elr != state.elr:
            self._write(leader, isr, state.directories, elected=elected)

    def _write(self, leader: int, isr: tuple[int, ...], directories: Mapping[int, str], *, elected: bool) -> None:
        state = self.state
        elr: tuple[int, ...] = ()
        if len(isr) < self.min_isr:
            elr = tuple(
                node
                for node in self.replicas
                if (node in state.elr or node in state.isr) and node not in isr and not self._has_other_disk(node)
            )
        epoch = state.leader_epoch + elected
        self.state = PartitionState(
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            elr=elr,
            directories=directories,
            partition_epoch=state.partition_epoch + 1,
        )
        if elected:
            self.leaders[epoch] = leader
        self.sequence += 1
