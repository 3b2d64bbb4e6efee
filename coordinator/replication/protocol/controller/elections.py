"""Which replica leads a unit, which are in sync, and which are eligible (CL-C2 to CL-C5), for one unit.

No other unit and no write is known here: a `PartitionState` and a `ReplicaStanding` go in; the state as it should be
comes out, or None where it is as it should be.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, NO_NODE_ID, PartitionState
from muster.coordinator.replication.protocol.controller.events_and_effects import ElectionKind

NO_NODES: frozenset[int] = frozenset()


class ReplicaStanding(NamedTuple):
    """How the replicas of one unit stand, by node ids; tuples are in order of assignment.

    live: CL-C3, for this unit: its node is live, with the data directory it was in sync with, its log is online, and it
    did not lose power with a log that is flushed loosely. back: it did, and all else is as with live. foreign: its
    node shows another directory. present: its node is live and its log online, whatever its directory. leaving: nobody
    is elected there. stopping: of those, who shuts down, and should be in sync no more. minimum: CL-C5's min. lowest:
    the smallest that a leader may go by who has not heard of that one yet. tokens: what a present node's directory goes
    by (`nodes.token`). unclean: who is not in sync may lead, if nobody else can. epoch: of the controller.
    """

    replicas: tuple[int, ...]
    live: tuple[int, ...]
    back: tuple[int, ...] = ()
    foreign: tuple[int, ...] = ()
    present: tuple[int, ...] = ()
    leaving: frozenset[int] = NO_NODES
    stopping: frozenset[int] = NO_NODES
    minimum: int = 1
    lowest: int = 1_000_000
    tokens: Mapping[int, str] = {}
    unclean: bool = False
    epoch: int = NO_EPOCH


class StateDecision(NamedTuple):
    """A state to be written. clean: how it was elected; None where the leader is the same, in the same epoch."""

    state: PartitionState
    clean: ElectionKind | None = None


class LeaderChoice(NamedTuple):
    """Who leads, who is in sync then, and how clean that is. directory: what the one who leads is trusted by from now
    on, where that is new."""

    leader: int
    isr: tuple[int, ...]
    clean: ElectionKind
    directory: str | None = None


def decide_state(
    state: PartitionState, now: ReplicaStanding, cause: str, *, anew: bool = False
) -> StateDecision | None:
    """The state as it should be, or None. `cause` becomes the state's if somebody is elected.

    anew: a leader that is live is elected again, in a new epoch, for it may be another life of its node.
    """
    choice = choose_leader(state, now)
    stays = choice.leader == state.leader and not (anew and choice.leader != NO_NODE_ID)
    isr = isr_without_stopping(choice, now)
    elr = () if choice.clean is ElectionKind.UNCLEAN else next_elr(state.elr, state.isr, isr, now)
    if stays and same_nodes(isr, state.isr) and same_nodes(elr, state.elr):
        return None
    decided = next_state(
        state,
        leader=choice.leader,
        isr=isr,
        elr=elr,
        cause=state.cause if stays else cause,
        epoch=now.epoch,
        elected=not stays,
        unclean=choice.clean in (ElectionKind.UNCLEAN, ElectionKind.LAST_KNOWN),
        directories=None if choice.directory is None else {**state.directories, choice.leader: choice.directory},
    )
    return StateDecision(decided, None if stays else choice.clean)


def same_nodes(some: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Whether these are the same nodes, whatever their order."""
    return some == others or set(some) == set(others)


def next_state(
    state: PartitionState,
    *,
    leader: int,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    cause: str,
    epoch: int,
    elected: bool,
    unclean: bool = False,
    directories: Mapping[int, str] | None = None,
) -> PartitionState:
    """The next state: one partition epoch up, and one leader epoch with each election (be it of nobody). epoch: of the
    controller."""
    leader_epoch = state.leader_epoch + 1 if elected else state.leader_epoch
    return PartitionState(
        leader=leader,
        leader_epoch=leader_epoch,
        isr=isr,
        elr=elr,
        directories=state.directories if directories is None else directories,
        controller_epoch=epoch,
        partition_epoch=state.partition_epoch + 1,
        unclean_epoch=leader_epoch if unclean and elected else state.unclean_epoch,
        cause=cause,
    )


def choose_leader(state: PartitionState, now: ReplicaStanding) -> LeaderChoice:
    """CL-C2: a leader that is live stays; else who is first, in order of assignment, of those in sync; of those
    eligible; the last who was in sync though it may have lost something; anybody, where that is allowed; nobody."""
    in_sync = tuple([each for each in now.live if each in state.isr])
    if state.leader in in_sync:
        return LeaderChoice(state.leader, in_sync, ElectionKind.ISR)
    if (leader := first_candidate(in_sync, now)) is not None:
        return LeaderChoice(leader, in_sync, ElectionKind.ISR)
    if in_sync:
        return LeaderChoice(NO_NODE_ID, in_sync, ElectionKind.OFFLINE)
    if (leader := first_candidate((each for each in now.live if each in state.elr), now)) is not None:
        return LeaderChoice(leader, (leader,), ElectionKind.ELR)
    if (leader := last_known_leader(state, now)) is not None:
        return LeaderChoice(leader, (leader,), ElectionKind.LAST_KNOWN, now.tokens[leader])
    if now.unclean and (leader := first_candidate((*now.live, *now.present), now)) is not None:
        return LeaderChoice(leader, (leader,), ElectionKind.UNCLEAN, now.tokens[leader])
    return LeaderChoice(NO_NODE_ID, retained_isr(state, now), ElectionKind.OFFLINE)


def first_candidate(candidates: Iterable[int], now: ReplicaStanding) -> int | None:
    """The first that may lead. Who is drained does when nobody else can: it is up, and has all; who stops does not."""
    drained = None
    for each in candidates:
        if each in now.stopping:
            continue
        if each not in now.leaving:
            return each
        if drained is None:
            drained = each
    return drained


def retained_isr(state: PartitionState, now: ReplicaStanding) -> tuple[int, ...]:
    """CL-C4: in sync remains who was, for when one of them returns; but for those whose directory is gone, unless that
    is all of them."""
    return tuple(each for each in state.isr if each not in now.foreign) or state.isr


def last_known_leader(state: PartitionState, now: ReplicaStanding) -> int | None:
    """The first of those last in sync, if all are back, and what they may have lost cannot be had from anybody: not
    while an eligible replica, which has all, is only away (KIP-966: when the ELR is empty). Where records may be lost
    anyhow it is not waited for."""
    waited_for = () if now.unclean else (each for each in (*state.isr, *state.elr) if each not in now.foreign)
    if any(each not in now.back for each in waited_for):
        return None
    return first_candidate((each for each in now.back if each in state.isr), now)


def isr_without_stopping(choice: LeaderChoice, now: ReplicaStanding) -> tuple[int, ...]:
    """CL-A7: who shuts down is in sync no more, where enough others are."""
    isr = choice.isr
    if now.stopping and choice.leader != NO_NODE_ID:
        for each in choice.isr:
            if each in now.stopping and each != choice.leader and len(isr) > now.minimum:
                isr = tuple(other for other in isr if other != each)
    return isr


def next_elr(
    elr: tuple[int, ...], before: tuple[int, ...], isr: tuple[int, ...], now: ReplicaStanding
) -> tuple[int, ...]:
    """CL-C5: who was in sync or eligible, is not in sync now, and has all that was committed, for nothing is while the
    ISR is below the minimum; which it has to be for every leader, also for one that goes by an older and lower one.

    So a minimum that changes takes nobody away where the ISR is below both: nothing was committed without those who
    are eligible by the one, nor is by the other. Where the ISR reaches the new one they go, before anybody is told of
    it; where it grows to the old one they go, too, until its leader has heard of the new one. Kafka 4.1 clears all
    of a topic's, whatever the ISR (KIP-966, ClearElrRecord): one record instead of a look at each partition, and
    nobody there knows who has heard.
    """
    grown = not set(isr) <= set(before)
    if len(isr) >= (min(now.minimum, now.lowest) if grown else now.minimum) or (not elr and before == isr):
        return ()
    may = (*elr, *before) if len(isr) < now.lowest else elr
    lost = (*now.foreign, *now.back)
    return tuple(each for each in now.replicas if each in may and each not in isr and each not in lost)


def hand_over_leader(state: PartitionState, to: int, now: ReplicaStanding, cause: str) -> StateDecision | None:
    """CL-A6: another leader while the one there is lives; None if `to` may not lead now, or does already."""
    if to == state.leader or to not in state.isr or to not in now.live or to in now.leaving:
        return None
    in_sync = tuple(each for each in now.live if each in state.isr)
    isr = isr_without_stopping(LeaderChoice(to, in_sync, ElectionKind.ISR), now)
    elr = next_elr(state.elr, state.isr, isr, now)
    return StateDecision(
        next_state(state, leader=to, isr=isr, elr=elr, cause=cause, epoch=now.epoch, elected=True), ElectionKind.ISR
    )


def initial_state(now: ReplicaStanding) -> PartitionState | None:
    """The first state of a unit: in sync are all replicas that are live, the first of them leads. None while there is
    none."""
    leader = first_candidate(now.live, now)
    if leader is None:
        return None
    directories = {each: now.tokens[each] for each in now.live}
    return PartitionState(leader, 0, now.live, (), directories, now.epoch, NO_EPOCH + 1, cause="created")
