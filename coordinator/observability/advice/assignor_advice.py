"""Advice on how partitions are assigned: another assignor, KIP-848, plans that look at lag, and taking a group over."""

from collections.abc import Iterator
from typing import Final

from muster.assignors.api import AssignorError, Member, RebalanceProtocol, Snapshot
from muster.assignors.registry import own_name, resolve
from muster.assignors.run import run
from muster.assignors.tools.what_if import owner_of
from muster.coordinator.observability.advice.membership_advice import advise_static_membership
from muster.coordinator.observability.advice.model import LEAST_ROUNDS, LEAST_SHARE, Advice, GroupRecord, Saving
from muster.coordinator.observability.advice.plan_replay import COOPERATIVE_STICKY, PlanReplay, ReplayCost, replay_plans
from muster.coordinator.observability.advice.skew_advice import advise_on_skew
from muster.coordinator.observability.doctor.model import member_name
from muster.coordinator.observability.views.formatting import plural

JAVA_CLASSES: Final = {
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
}
EAGER_ONLY: Final = ("kafka-python", "aiokafka", "kafkajs", "sarama")
"""Libraries without a cooperative assignor and without KIP-848, as their clients name themselves."""
KAFKAJS_ASSIGNOR: Final = "RoundRobinAssigner"
"""What only kafkajs calls its assignor."""
LAG_TIMES: Final = 1.5
"""Below so many times the mean, the heaviest member is none."""
LEAST_LAG: Final = 1_000
OF_LAG: Final = "of the heaviest member's lag"

# Another assignor
# ----------------


def advise_assignor(record: GroupRecord, replay: PlanReplay) -> Iterator[Advice]:
    """Another assignor would have moved fewer partitions, or stopped fewer members."""
    if replay.problem or replay.rounds < LEAST_ROUNDS:
        return
    best: tuple[Saving, str, ReplayCost] | None = None
    for name in suitable_assignors(record, replay):
        cost = replay.others[name]
        saves = record.saving(replay.real.seconds - cost.seconds, replay.real.moves - cost.moves, 0)
        if saves is not None and (best is None or saves.weight > best[0].weight):
            best = saves, name, cost
    if best is None:
        return
    saves, name, cost = best
    settings, how = switch_to(record, replay.assignor, name)
    yield Advice(
        kind="assignor",
        sentence=f"Use {name} instead of {replay.assignor}: over {replay.rounds} rebalances it would have moved "
        f"{cost.moves:,} partitions, not {replay.real.moves:,}{shorter_stop(replay.real, cost)}.",
        settings=settings,
        how=how,
        saves=saves,
        proof=(
            f"{plural(replay.rounds, 'plan')} of {replay.assignor} made again from the same input: all come out as "
            "recorded",
            *map(describe_cost, (replay.real, *replay.others.values())),
        ),
    )


def shorter_stop(real: ReplayCost, cost: ReplayCost) -> str:
    """What another way to hand over makes of the time without an owner; nothing where that stays as it is."""
    if cost.seconds >= real.seconds:
        return ""
    return (
        f", and partitions would have been without an owner for {cost.seconds:,.1f} partition-seconds, not "
        f"{real.seconds:,.1f}"
    )


def suitable_assignors(record: GroupRecord, replay: PlanReplay) -> list[str]:
    """What the group's members can be told to use, and is not worse in kind than what they have."""
    if record.by_consumer_protocol:
        names = ["uniform"]
    elif resolve(replay.assignor).protocol is RebalanceProtocol.COOPERATIVE:
        names = []
    else:
        names = ["sticky"] if has_eager_clients(record) else [COOPERATIVE_STICKY, "sticky"]
    return [name for name in names if name in replay.others and not replay.others[name].failure]


def has_eager_clients(record: GroupRecord) -> bool:
    """A broker's records do not tell of a client's software, but some have its name for a client id."""
    named = (word.lower() for member in record.members for word in (member.client_software, member.client_id))
    return record.planned_with == KAFKAJS_ASSIGNOR or any(word.startswith(EAGER_ONLY) for word in named)


def describe_cost(cost: ReplayCost) -> str:
    if cost.failure:
        return f"{cost.assignor}: no plan ({cost.failure})"
    return f"{cost.assignor}: {plural(cost.moves, 'move')}, {cost.seconds:,.1f} partition-seconds without an owner"


def switch_to(record: GroupRecord, own: str, name: str) -> tuple[tuple[str, ...], str]:
    """The settings, and in which order to apply them."""
    if record.by_consumer_protocol:
        return (f"group.remote.assignor={name}",), "Set it on each client and restart them one by one."
    java = JAVA_CLASSES[name]
    offered = [member.offered_assignors for member in record.members]
    setting = f"partition.assignment.strategy={name}"
    if offered and all(name in names for names in offered):
        how = f"All members offer {name} already, so one rolling restart is enough. Java's clients call it {java}."
        return (setting,), how
    both = f"partition.assignment.strategy={name},{own}"
    how = (
        f"Restart the members one by one with both names, then once more with {name} alone; Java's clients call it "
        f"{java}."
    )
    if name == COOPERATIVE_STICKY:
        how += " librdkafka's clients cannot mix the two: stop all, then start all with the new one."
    return (both, setting), how


# KIP-848
# -------


def advise_consumer_protocol(record: GroupRecord) -> Iterator[Advice]:
    """Eager members stop for changes that do not concern them; by KIP-848 they go on."""
    if record.group.type != "classic" or has_eager_clients(record):
        return
    rounds = [each for each in record.rounds if each.kept_gap > 0 and each.undisturbed]
    if len(rounds) < LEAST_ROUNDS:
        return
    seconds = sum(each.kept_gap * each.undisturbed for each in rounds)
    saves = record.saving(seconds, 0, 0)
    if saves is None:
        return
    partitions = sum(each.undisturbed for each in rounds)
    yield Advice(
        kind="kip-848",
        sentence=f"Use the consumer protocol (KIP-848): in {len(rounds)} rebalances members whose share did not change "
        f"stopped all the same, for {seconds:,.1f} partition-seconds.",
        settings=("group.protocol=consumer",),
        how="Remove partition.assignment.strategy, session.timeout.ms and heartbeat.interval.ms, and restart the "
        "members one by one. It takes Java's clients from 4.0, librdkafka's from 2.12, and a broker from 4.0.",
        saves=saves,
        proof=(
            f"partitions that stayed where they were, of members that lost and gained nothing: {partitions:,} in "
            f"{len(rounds)} rebalances",
            f"each stood still for {seconds / partitions:.2f} s on average",
        ),
    )


# Lag
# ---


def advise_lag_aware(record: GroupRecord) -> Iterator[Advice]:
    """One member carries most of the lag, and a plan by lag would have spread it."""
    group = record.group
    lags = {member.member_id: group.lag_of(member) for member in group.working}
    total = sum(lags.values())
    if not group.stable or len(lags) < 2 or total < LEAST_LAG:
        return
    heaviest = min(lags, key=lambda member: (-lags[member], member))
    ratio = lags[heaviest] * len(lags) / total
    planned = heaviest_by_lag(record)
    if ratio < LAG_TIMES or planned is None or any(each.kind == "skew" for each in advise_on_skew(record)):
        return
    share = 1 - planned / lags[heaviest]
    if share < LEAST_SHARE:
        return
    who = next(member_name(member) for member in group.members if member.member_id == heaviest)
    setting = f"muster groups set {group.id} assignor=lag-sticky"
    how = "The coordinator plans then, whatever the clients offer. `muster groups unset` ends it."
    if record.watched:
        setting = f"muster engine adopt {group.id}"
        how = (
            "Kafka's assignors do not look at lag. Muster plans by lag once it coordinates the group: stop the group, "
            "adopt it, point its clients at Muster, and set its assignor to lag-sticky."
        )
    yield Advice(
        kind="lag-aware",
        sentence=f"Plan by lag: {who} has {lags[heaviest]:,} of {total:,} records behind, {ratio:.1f} times the mean; "
        f"by lag-sticky the heaviest member would have {planned:,}.",
        settings=(setting,),
        how=how,
        saves=Saving(share=round(share, 4), of=OF_LAG),
        proof=(
            *(
                f"{member_name(member)}: {plural(len(member.assignment), 'partition')}, {lags[member.member_id]:,} "
                "records behind"
                for member in sorted(group.working, key=lambda each: (-lags[each.member_id], each.member_id))[:5]
            ),
            "planned again from the positions as they are now",
        ),
    )


def heaviest_by_lag(record: GroupRecord) -> int | None:
    """The largest lag of a member if lag-sticky planned the group now; None where that cannot be known."""
    group = record.group
    topics = {topic: record.facts.partitions[topic] for topic in group.by_topic() if topic in record.facts.partitions}
    rows = {(tp.topic, tp.partition): position.lag for tp, position in group.positions.items()}
    lags = {topic: [rows.get((topic, at), 0) for at in range(count)] for topic, count in topics.items()}
    members = []
    for member in group.working:
        owned: dict[str, list[int]] = {}
        for tp in member.assignment:
            owned.setdefault(tp.topic, []).append(tp.partition)
        members.append(Member(member.member_id, member.topics, owned, 1, member.group_instance_id))
    try:
        plan = run(resolve("lag-sticky"), Snapshot(topics, members, lags), withhold=False).to_dict()
    except (AssignorError, ValueError):
        return None
    loads = dict.fromkeys((member.id for member in members), 0)
    for place, owner in owner_of(plan).items():
        loads[owner] += rows.get(place, 0)
    return max(loads.values(), default=0)


# Take it over
# ------------


def advise_adoption(record: GroupRecord) -> Iterator[Advice]:
    """A group of another broker restarts often: Muster can hold shares for a deploy, without a change of clients."""
    if not record.watched:
        return
    for static in advise_static_membership(record):
        yield Advice(
            kind="adopt",
            sentence="Or let Muster coordinate the group: for a deploy it keeps the shares of members that restart, "
            "without a change of any client.",
            settings=(f"muster engine adopt {record.group.id}", f"muster groups deploy {record.group.id}"),
            how="Stop the group, adopt it with its positions, and point its clients at Muster. `muster engine release` "
            "gives it back.",
            saves=static.saves,
            proof=static.proof[:2],
        )


def judge_assignor(record: GroupRecord) -> PlanReplay:
    """The comparison, where there is enough to compare, and something to gain: a cooperative group has the best there
    is of what members can choose."""
    if record.is_quiet or len(record.disturbing) < LEAST_ROUNDS:
        return PlanReplay()
    if not record.by_consumer_protocol and own_name(record.planned_with) == COOPERATIVE_STICKY:
        return PlanReplay(COOPERATIVE_STICKY)
    return replay_plans(record)
