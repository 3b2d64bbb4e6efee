"""CL-C8: a leader asks for other in-sync replicas (AlterPartition, KIP-497, KIP-841, KIP-903)."""

from collections.abc import Mapping

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller.elections import ReplicaStanding, next_elr, next_state
from muster.coordinator.replication.protocol.controller.events import IsrItem
from muster.coordinator.replication.protocol.facts import ClusterNode, PartitionState


def check_alter_partition(
    item: IsrItem, sender: int, state: PartitionState, now: ReplicaStanding, live: Mapping[int, ClusterNode]
) -> ErrorCode:
    """The first rule that speaks against it; NONE if none does, also where it is so already.

    live: the nodes that are, whatever the unit: a replica with a new disk is not live for the unit (CL-C3) before it
    has joined, so that cannot be asked of it here. The same set is answered as done; of the present partition epoch it
    is written anew (tasks.asks.settles). Who shuts down may not join; one that is in sync still does not keep the
    leader from asking for others, or nobody could join while a drained node waits to be let go.
    """
    if item.leader_epoch > state.leader_epoch or item.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if item.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    asked = {member.node for member in item.isr}
    if asked == set(state.isr):
        return ErrorCode.NONE
    if item.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    for member in item.isr:
        node = live.get(member.node)
        if (
            node is None
            or node.epoch != member.epoch
            or (member.node in now.replicas and member.node not in now.present)
        ):
            return ErrorCode.INELIGIBLE_REPLICA
        if member.node in now.stopping and member.node not in state.isr:
            return ErrorCode.INELIGIBLE_REPLICA
    if state.leader not in asked or sender != state.leader or not asked <= set(now.replicas):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def altered_state(item: IsrItem, state: PartitionState, now: ReplicaStanding) -> PartitionState:
    """The state with the in-sync replicas that were asked for, in order of assignment.

    CL-C6: who joins is known by the directory it registered with; who is in already keeps what it is known by.
    """
    asked = {member.node for member in item.isr}
    isr = tuple(each for each in now.replicas if each in asked)
    joining = [each for each in isr if each not in state.isr]
    return next_state(
        state,
        leader=state.leader,
        isr=isr,
        elr=next_elr(state.elr, state.isr, isr, now),
        cause=state.cause,
        epoch=now.epoch,
        elected=False,
        directories={**state.directories, **{each: now.tokens[each] for each in joining}} if joining else None,
    )
