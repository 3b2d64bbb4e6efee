"""Why a classic group that another broker coordinates rebalanced, from the records that it keeps of the group.

The broker writes one record for each generation, when the leader has handed in the plan: members with their timeouts,
subscriptions and shares. It writes no cause. What differs between two generations is recorded; how a member went is
inferred from when its partitions were committed last. What neither tells is unknown, which is better than wrong.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from muster.assignors.api import TopicPartition
from muster.coordinator.core.classic.group import cooperative_names
from muster.coordinator.core.classic.rebalance_ledger import NO_DIFFERENCE, JoinDifference, compare_joins
from muster.coordinator.core.groups.member_causes import describe_subscription, name_few
from muster.coordinator.core.groups.member_history import (
    HOW_GONE,
    MAX_FORMER_MEMBERS,
    NO_CONNECTION,
    MemberHistory,
    SeenMember,
    describe_ms,
)
from muster.coordinator.core.model.ledger import (
    Departure,
    OngoingRebalance,
    PlanBefore,
    RebalanceChange,
    RebalanceTrigger,
    WithheldPartition,
    diff_plans,
    trigger_by_member,
    with_unowned_time,
)
from muster.coordinator.core.model.plan import (
    CONSUMER,
    Plan,
    assignment_of,
    owned_of,
    rebuilt_snapshot,
    subscription_of,
    topics_of,
)
from muster.coordinator.core.model.records import GroupStored, MemberRecord
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Incarnation,
    MemberPlan,
    Outcome,
    Protocol,
    RebalanceEntry,
    RebalanceSource,
    TopicChange,
    TopicChangeKind,
    WaitEnd,
)
from muster.coordinator.core.watched.endings import (
    NOTICE_MS,
    POLL_CHECK_MS,
    SLACK_MS,
    WENT_SOMEHOW,
    WHICH_CAME_FIRST,
    CommitTimes,
    Ending,
    LastSigns,
    MemberTimeouts,
    WaitedOutRound,
    conclude_ending,
    unknown_ending,
)

SEVERAL = 2
"""Members of whom it is no chance that they do the same at once."""

NONE_KNOWN: Mapping[str, int] = MappingProxyType({})

OFTEN = 4
"""Commits that a member makes, at the least, in the time whose end its silence is to tell."""

LEARNING_MS = 2_000
"""For so long a topic that members had not named before may be one that their leader still looks up."""


class WentMember(NamedTuple):
    """How a member went, and how long it had been silent by then."""

    ending: Ending
    silent_ms: int


NOBODY_WENT = WentMember(unknown_ending(""), 0)


@dataclass(slots=True)
class ClassicHistory:
    """One group as its records tell of it. number: of the last entry."""

    group_id: str
    number: int = 0
    commits: CommitTimes = field(default_factory=CommitTimes)
    members: MemberHistory = field(default_factory=MemberHistory)
    _stored: GroupStored | None = None
    _joined_ms: int = 0
    """When its generation was written first: its members had joined by then."""
    _coordinator_epoch: int = -1
    _carried: dict[TopicPartition, WithheldPartition] = field(default_factory=dict)
    _surely_free: dict[TopicPartition, int] = field(default_factory=dict)
    """Of those in `_carried` that their owners had let go of: since when at the latest."""
    _partitions: dict[str, int] = field(default_factory=dict)
    """Topic -> partitions, as far as plans and claims have named them."""
    _awaited: dict[str, int] = field(default_factory=dict)
    """Topics of which two generations ago members wanted partitions, and nobody had any: since when, ms."""
    _went: dict[str, WentMember] = field(default_factory=dict)
    """By id, those that went last: some come back."""

    @property
    def stored(self) -> GroupStored | None:
        """The last generation on record."""
        return self._stored

    def take_group(self, now: GroupStored, written_ms: int, coordinator_epoch: int) -> RebalanceEntry | None:
        """The entry of the rebalance that led to this record; None: none did, or the history begins with it.

        written_ms: when the broker wrote the record. coordinator_epoch: the leader epoch of the record's partition,
        which rises when another broker became the group's coordinator.
        """
        before, moved_from = self._stored, self._coordinator_epoch
        self._stored, self._coordinator_epoch = now, coordinator_epoch
        if before is not None and now.generation == before.generation:
            return self._take_same_generation(before, now, written_ms)
        joined_ms, self._joined_ms = self._joined_ms, written_ms
        known = dict(self._partitions)
        awaited = frozenset(topic for topic, since in self._awaited.items() if written_ms - since > LEARNING_MS)
        self._awaited = {topic: self._awaited.get(topic, joined_ms) for topic, count in known.items() if not count}
        named = named_partitions(now, known)
        self._note_partitions(now, named)
        if before is None or now.generation < before.generation:
            self._carried, self._surely_free = {}, {}
            return None
        step = GenerationStep(before, now, joined_ms, written_ms, known, awaited, named=named)
        return self._conclude(step, coordinator_moved=-1 < moved_from < coordinator_epoch)

    def _note_partitions(self, now: GroupStored, named: Mapping[str, int]) -> None:
        """Topics that nobody subscribes to any more are forgotten, unless nobody is there. named: those in `now`."""
        if now.members:
            self._partitions = {topic: named.get(topic, 0) for topic in wanted_topics(now) | named.keys()}

    def take_deletion(self) -> None:
        """The broker forgot the group."""
        self._stored, self._carried, self._surely_free, self._partitions = None, {}, {}, {}

    # A rebalance
    # -----------

    def _conclude(self, step: "GenerationStep", coordinator_moved: bool) -> RebalanceEntry:
        signs = {member_id: step.last_signs(self.commits, member_id) for member_id in step.gone}
        gone = {each: conclude_ending(timeouts_of(step.old[each]), signs[each]) for each in step.gone}
        for member_id, ending in gone.items():
            member, heard_ms = step.old[member_id], signs[member_id].heard_ms
            self.members.note_gone(seen_member(member, heard_ms), ending.end, step.written_ms)
            self._went[member_id] = WentMember(ending, step.written_ms - heard_ms)
        while len(self._went) > MAX_FORMER_MEMBERS:
            del self._went[next(iter(self._went))]
        triggers, incarnations = self._triggers(step, gone, signs, coordinator_moved)
        self.number += 1
        rebalance = OngoingRebalance(self.number, triggers[0], step.before.generation, step.begun_ms(self.commits))
        rebalance.incarnations = incarnations
        rebalance.topics = step.topic_changes
        for trigger in triggers[1:]:
            rebalance.note(trigger, step.written_ms)
        for member_id, ending in gone.items():
            rebalance.left(
                member_id, Departure(why_free(ending), signs[member_id].heard_ms, ending.end), step.written_ms
            )
        if not step.cooperative:
            for member_id in step.stayed:
                rebalance.released[member_id] = step.heard_ms(self.commits, member_id)
        for member_id in step.new:
            rebalance.arrivals[member_id] = step.written_ms
        # Whose session expired was heard of for the last time a session timeout before, at the latest.
        let_go_ms = {
            each: max(signs[each].heard_ms, step.written_ms - step.old[each].session_timeout_ms)
            for each, ending in gone.items()
            if ending.cause is Cause.SESSION_EXPIRED
        }
        return self._entry(step, rebalance, let_go_ms)

    def _entry(
        self, step: "GenerationStep", rebalance: OngoingRebalance, let_go_ms: Mapping[str, int]
    ) -> RebalanceEntry:
        """let_go_ms: by when, at the latest, a member had let go; any other had when this was written."""
        still_held = {member_id: owned_of(member.subscription) for member_id, member in step.new.items()}
        carried, surely_free = self._carried, self._surely_free
        diff = diff_plans(PlanBefore(step.plan_before, still_held, carried), step.plan, rebalance)

        def free_at_latest(tp: TopicPartition, holder: str) -> int:
            return surely_free.get(tp, let_go_ms.get(holder, step.written_ms))

        self._surely_free = {
            tp: free_at_latest(tp, each.holder) for tp, each in diff.withheld.items() if each.since_ms is not None
        }
        # Who is asked to give something up does so when it gets the plan.
        self._carried = {
            tp: each if each.since_ms is not None else replace(each, since_ms=step.written_ms)
            for tp, each in diff.withheld.items()
        }
        free_ms = {tp: gap.length_ms(step.written_ms) for gap in diff.gaps for tp in gap.moved}
        moves, surely_ms = [], 0
        for move in diff.moves:
            tp = move.topic, move.partition
            if tp in free_ms:
                least_ms = min(free_ms[tp], step.written_ms - free_at_latest(tp, move.source))
                surely_ms += least_ms
                move = with_unowned_time(move, free_ms[tp], least_ms if least_ms < free_ms[tp] else None)
            moves.append(move)
        change = RebalanceChange(
            generation=step.now.generation,
            protocol_type=step.now.protocol_type,
            protocol_name=step.now.protocol or "",
            moves=tuple(moves),
            members=step.member_plans(),
            snapshot_json=step.snapshot_json(),
            snapshot_source="records",
        )
        outcome = Outcome.COMPLETED if step.new else Outcome.EMPTIED
        entry = rebalance.entry(outcome, step.written_ms, change)
        total = sum(gap.length_ms(step.written_ms) * gap.count for gap in diff.gaps)
        return replace(
            entry,
            source=RebalanceSource.WATCHED,
            unowned_partition_ms=total if step.new else -1,
            unowned_at_least_partition_ms=surely_ms if step.new and surely_ms < total else None,
        )

    # Causes
    # ------

    def _triggers(
        self,
        step: "GenerationStep",
        gone: Mapping[str, Ending],
        signs: Mapping[str, LastSigns],
        coordinator_moved: bool,
    ) -> tuple[list[RebalanceTrigger], list[Incarnation]]:
        """What differs between the generations: the first is the cause."""
        incarnations: list[Incarnation] = []
        arrivals: list[RebalanceTrigger] = []
        late: list[RebalanceTrigger] = []
        for member_id in step.came:
            trigger, incarnation = self._trigger_of_newcomer(step, member_id, gone)
            was = None if incarnation is None else gone.get(incarnation.previous_id)
            if incarnation is not None:
                incarnations.append(incarnation)
            (late if was is not None and was.may_be_late else arrivals).append(trigger)
        back = {each.previous_id for each in incarnations}
        left_over = {member_id: ending for member_id, ending in gone.items() if member_id not in back}
        late += [trigger_of_ending(step.old[each], ending) for each, ending in left_over.items() if ending.may_be_late]
        endings = {member_id: ending for member_id, ending in left_over.items() if not ending.may_be_late}
        departures = [trigger_of_ending(step.old[member_id], ending) for member_id, ending in endings.items()]
        over_ms = [signs[each].over_ms(step.old[each].session_timeout_ms, gone[each]) for each in endings]
        # Where the others stopped before anybody was gone, it was for those who came.
        if arrivals and over_ms and min(over_ms) > step.begun_ms(self.commits) + SLACK_MS:
            triggers = [*arrivals, *departures]
        else:
            triggers = [*departures, *arrivals]
        common = step.came and set(step.gone) == set(step.old) and len(back) == len(step.gone)
        if common and (coordinator_moved or len(step.gone) >= SEVERAL):
            triggers = [trigger_of_common_return(coordinator_moved=coordinator_moved)]
            triggers += [each for each in arrivals if each.cause is Cause.MEMBER_JOINED]
        else:  # who is back had not left before
            expired = [each for each in back & gone.keys() if gone[each].cause is Cause.SESSION_EXPIRED]
            triggers += [trigger_of_ending(step.old[each], gone[each]) for each in sorted(expired)]
        triggers += self._triggers_of_those_who_stayed(step)
        triggers += late  # the round ended them, so something else began it
        if not triggers:
            triggers = [trigger_of_repetition(step)]
        if len(triggers) > 1 and triggers[0].certainty is Certainty.RECORDED:
            triggers[0] = replace(triggers[0], certainty=Certainty.INFERRED, evidence=WHICH_CAME_FIRST)
        return triggers, incarnations

    def _trigger_of_newcomer(
        self, step: "GenerationStep", member_id: str, gone: Mapping[str, Ending]
    ) -> tuple[RebalanceTrigger, Incarnation | None]:
        member = step.new[member_id]
        newcomer = seen_member(member, step.written_ms)
        returned = None if step.shares_names(member) else self.members.find_return(newcomer, (), step.written_ms)
        if returned is None:
            return trigger_by_member(Cause.MEMBER_JOINED, newcomer, "joined"), None
        former = returned.former
        self.members.succeed(former.id, member_id)
        away_ms = max(0, step.written_ms - former.heard_ms)
        ending, silent_ms = self._went.pop(former.id, NOBODY_WENT)
        incarnation = Incarnation(member_id, former.id, away_ms, HOW_GONE[former.end] if ending.known else "gone")
        evidence = "same group.instance.id" if former.instance_id else "same client id and host"
        at_once = former.id in gone
        if at_once and ending.cause is Cause.POLL_TIMEOUT:
            return trigger_of_late_poll(newcomer, former.id, ending.evidence), incarnation
        if at_once and ending.may_be_late:
            return trigger_of_late_join(newcomer, former.id, ending), incarnation
        poll_ms, claims = member.rebalance_timeout_ms, claimed_generation(member.subscription)
        if 0 < poll_ms <= silent_ms and 0 <= claims <= step.before.generation and not owned_of(member.subscription):
            named = (
                f"{evidence}; it names generation {claims}, in which it was, and was silent for "
                f"{describe_ms(silent_ms)} when it was found gone; its max.poll.interval.ms is {describe_ms(poll_ms)}"
            )
            return trigger_of_late_poll(newcomer, former.id, named), incarnation
        if at_once and ending.known:
            evidence += f"; of the id before: {ending.evidence}"
        what = f"is back under a new id, {describe_ms(away_ms)} after its last sign of life (was {former.id})"
        trigger = trigger_by_member(Cause.MEMBER_RESTARTED, newcomer, what)
        return replace(trigger, certainty=Certainty.INFERRED, evidence=evidence), incarnation

    def _triggers_of_those_who_stayed(self, step: "GenerationStep") -> list[RebalanceTrigger]:
        changes = step.topic_changes
        told = {each.topic for each in changes}
        triggers, followers = [], []
        for member_id in step.stayed:
            said = step.difference(member_id)
            added, removed = said.topics_added, said.topics_removed
            if not added and not removed:
                continue
            if added <= told and all(topic in told or step.is_without_partitions(topic) for topic in removed):
                followers.append(member_id)
                continue
            deliberate = bool(added) and step.is_read_still(removed)
            triggers.append(self._trigger_of_subscription(step, member_id, deliberate=deliberate))
        if step.before.protocol and step.now.protocol and step.before.protocol != step.now.protocol:
            what = f"the members chose {step.now.protocol} instead of {step.before.protocol}"
            triggers.append(RebalanceTrigger(Cause.PROTOCOL_CHANGED, what))
        if (learned := step.learned_topics) and step.now.leader in step.new:
            triggers.append(trigger_of_learning(step, learned))
        if changes:
            triggers.append(trigger_of_topics(changes))
        elif followers and not triggers:
            topics = frozenset().union(*(step.difference(each).topics_removed for each in followers))
            triggers.append(trigger_of_lost_topics(topics))
        return triggers or self._triggers_of_release(step)

    def _trigger_of_subscription(self, step: "GenerationStep", member_id: str, *, deliberate: bool) -> RebalanceTrigger:
        """deliberate: it reads another topic in place of one that there still is, so its program wants that."""
        seen = seen_member(step.new[member_id], step.written_ms)
        topics = topics_of(step.old[member_id].subscription) or frozenset()
        now = topics_of(step.new[member_id].subscription) or frozenset()
        trigger = trigger_by_member(Cause.SUBSCRIPTION_CHANGED, seen, describe_subscription(topics, now))
        if deliberate:
            return trigger
        evidence = (
            "no other member that was there names other topics than before; clients that look topics up before they "
            "name them also do so when one is made or deleted"
        )
        return replace(trigger, certainty=Certainty.INFERRED, evidence=evidence)

    def _triggers_of_release(self, step: "GenerationStep") -> list[RebalanceTrigger]:
        """The second round of a cooperative rebalance: what the last plan withheld was let go of."""
        triggers = []
        if step.came or step.gone:
            return []
        for member_id in step.stayed:
            asked = {tp for tp, withheld in self._carried.items() if withheld.holder == member_id}
            held = {(t, p) for t, ps in owned_of(step.new[member_id].subscription).items() for p in ps}
            if gave_up := sorted(asked - held):
                names = name_few(f"{topic}-{partition}" for topic, partition in gave_up)
                seen = seen_member(step.new[member_id], step.written_ms)
                triggers.append(
                    trigger_by_member(
                        Cause.REVOCATION_FOLLOW_UP, seen, f"gave up {names}, as the last plan asked it to"
                    )
                )
        return triggers

    # The same generation
    # -------------------

    def _take_same_generation(self, before: GroupStored, now: GroupStored, written_ms: int) -> RebalanceEntry | None:
        """A static member that is back keeps its share, under a new id (KIP-345); anything else tells nothing."""
        old = {member.group_instance_id: member for member in before.members if member.group_instance_id}
        for member in now.members:
            known = old.get(member.group_instance_id or "")
            if known is None or known.member_id == member.member_id:
                continue
            step = GenerationStep(before, now, self._joined_ms, written_ms, self._partitions)
            self.number += 1
            heard_ms = step.heard_ms(self.commits, known.member_id)
            share = assignment_of(member.assignment)
            kept = sum(len(partitions) for partitions in share.values())
            places = f"its {kept} {'partition' if kept == 1 else 'partitions'}"
            detail = f"is a new process under the group.instance.id {member.group_instance_id}, and has kept {places}"
            trigger = trigger_by_member(Cause.STATIC_MEMBER_REPLACED, seen_member(member, written_ms), detail)
            rebalance = OngoingRebalance(self.number, trigger, before.generation, written_ms)
            change = RebalanceChange(
                now.generation, now.protocol_type, now.protocol or "", (), step.member_plans(member.member_id)
            )
            away_ms = max(0, written_ms - heard_ms)
            rebalance.returned(Incarnation(member.member_id, known.member_id, away_ms, HOW_GONE[WaitEnd.REPLACED]))
            entry = rebalance.entry(Outcome.MEMBER_CHANGED, written_ms, change)
            return replace(entry, source=RebalanceSource.WATCHED)
        return None


def why_free(ending: Ending) -> str:
    """Of its partitions."""
    if not ending.known:
        return WENT_SOMEHOW
    return {
        Cause.SESSION_EXPIRED: "its owner's session expired",
        Cause.POLL_TIMEOUT: "its owner stopped polling, and left the group",
        Cause.REBALANCE_TIMEOUT: "its owner did not rejoin within the rebalance timeout",
    }.get(ending.cause, "its owner left the group")


def trigger_of_ending(member: MemberRecord, ending: Ending) -> RebalanceTrigger:
    trigger = trigger_by_member(ending.cause, seen_member(member, 0), ending.what)
    return replace(trigger, certainty=ending.certainty, evidence=ending.evidence)


def trigger_of_late_poll(newcomer: SeenMember, former_id: str, evidence: str) -> RebalanceTrigger:
    what = f"did not poll within max.poll.interval.ms, and is back under a new id (was {former_id})"
    trigger = trigger_by_member(Cause.POLL_TIMEOUT, newcomer, what)
    return replace(trigger, certainty=Certainty.INFERRED, evidence=evidence)


def trigger_of_late_join(newcomer: SeenMember, former_id: str, ending: Ending) -> RebalanceTrigger:
    what = f"{ending.what}, and is back under a new id (was {former_id})"
    trigger = trigger_by_member(ending.cause, newcomer, what)
    return replace(trigger, certainty=ending.certainty, evidence=ending.evidence)


def trigger_of_common_return(*, coordinator_moved: bool) -> RebalanceTrigger:
    """All members are back under new ids at once: then it was none of theirs."""
    if coordinator_moved:
        what = "another broker became the group's coordinator, or the same one anew, and all members joined again"
        evidence = "the leader epoch of the group's partition rose, and no member kept its id"
        return RebalanceTrigger(Cause.COORDINATOR_FAILOVER, what, certainty=Certainty.INFERRED, evidence=evidence)
    what = "all members joined again at once: their coordinator could not be reached, or all were started anew"
    return RebalanceTrigger(Cause.UNSPECIFIED, what, certainty=Certainty.UNKNOWN, evidence="no member kept its id")


def trigger_of_learning(step: "GenerationStep", topics: frozenset[str]) -> RebalanceTrigger:
    seen = seen_member(step.new[step.now.leader or ""], step.written_ms)
    what = f"leads the group, and plans again: its last plan had left out {name_few(sorted(topics))}"
    evidence = "members named what it left out for the first time then; clients look such topics up, and plan again"
    trigger = trigger_by_member(Cause.LEADER_REJOINED, seen, what)
    return replace(trigger, certainty=Certainty.INFERRED, evidence=evidence)


def trigger_of_lost_topics(topics: frozenset[str]) -> RebalanceTrigger:
    """A member has noticed that topics are gone, which another one had before."""
    what = f"a member noticed, later than another one, that there are no partitions of {name_few(sorted(topics))}"
    evidence = "it no longer names what nobody had partitions of in the generation before"
    return RebalanceTrigger(Cause.PARTITIONS_CHANGED, what, certainty=Certainty.INFERRED, evidence=evidence)


def trigger_of_topics(changes: tuple[TopicChange, ...]) -> RebalanceTrigger:
    """More partitions stand in shares. That a topic came or went is concluded: a leader may leave one out."""
    told = name_few(f"{each.topic} ({each.before} -> {each.after})" for each in changes)
    trigger = RebalanceTrigger(Cause.PARTITIONS_CHANGED, f"topics have other partitions: {told}", topics=changes)
    if all(each.kind is TopicChangeKind.GREW for each in changes):
        return trigger
    evidence = "what is named in shares and claims, by members that stayed"
    return replace(trigger, certainty=Certainty.INFERRED, evidence=evidence)


def trigger_of_repetition(step: "GenerationStep") -> RebalanceTrigger:
    """Nothing differs: the leader joined again, or a member whose answer was lost."""
    rounds = step.now.generation - step.before.generation
    between = f" ({rounds - 1} rounds before it got no plan)" if rounds > 1 else ""
    return RebalanceTrigger(
        Cause.UNSPECIFIED,
        f"members joined again, and their records say nothing new{between}: the leader asked for another plan, or a "
        "member did not get its answer",
        certainty=Certainty.UNKNOWN,
    )


def seen_member(member: MemberRecord, heard_ms: int) -> SeenMember:
    return SeenMember(
        member.member_id,
        member.client_id,
        member.client_host,
        "",
        member.group_instance_id or "",
        NO_CONNECTION,
        heard_ms,
        member.session_timeout_ms,
    )


def timeouts_of(member: MemberRecord) -> MemberTimeouts:
    return MemberTimeouts(member.session_timeout_ms, member.rebalance_timeout_ms, bool(member.group_instance_id))


def claimed_generation(subscription: bytes) -> int:
    """The generation that a member says its partitions are of; -1: it says none, or cannot be read."""
    try:
        generation = subscription_of(subscription).generation
    except ValueError:
        return -1
    return generation


# Two generations
# ---------------


class GenerationStep:
    """A group's record, and the one before it. joined_ms: when the one before was written first."""

    def __init__(
        self,
        before: GroupStored,
        now: GroupStored,
        joined_ms: int,
        written_ms: int,
        partitions: Mapping[str, int],
        awaited: frozenset[str] = frozenset(),
        *,
        named: dict[str, int] | None = None,
    ) -> None:
        """named: partitions that `now` names; None: they are counted here."""
        self.before, self.now, self.joined_ms, self.written_ms = before, now, joined_ms, written_ms
        self.named = named_partitions(now) if named is None else named
        self._partitions = partitions
        self._awaited = awaited
        self.old = {member.member_id: member for member in before.members}
        self.new = {member.member_id: member for member in now.members}
        self.gone = [member_id for member_id in self.old if member_id not in self.new]
        self.came = [member_id for member_id in self.new if member_id not in self.old]
        self.stayed = [member_id for member_id in self.new if member_id in self.old]
        self.plan_before: Plan = plan_of(before)
        self.plan: Plan = plan_of(now)
        self._last_ms: dict[str, int | None] = {}

    @property
    def cooperative(self) -> bool:
        return (self.now.protocol or "") in cooperative_names()

    def cells_before(self, member_id: str) -> list[TopicPartition]:
        """What the member had in the generation before."""
        return [(topic, each) for topic, partitions in self.plan_before[member_id].items() for each in partitions]

    def last_signs(self, commits: CommitTimes, member_id: str) -> LastSigns:
        """Of a member that is gone."""
        cells = self.cells_before(member_id)
        silence = commits.silence(cells, self.joined_ms)
        alone = not self.came and len(self.gone) == 1
        planned = {topic for share in self.plan.values() for topic in share}
        unplanned = wanted_topics(self.now) - planned
        return LastSigns(
            silence,
            self.joined_ms,
            self.begun_ms(commits),
            self.written_ms,
            alone,
            self.waited_out(commits),
            any(topic in unplanned for topic, _ in cells),
        )

    def waited_out(self, commits: CommitTimes) -> WaitedOutRound | None:
        """The round, if it took as long as its timeout. The first eager member to stop tells when it began, if that
        one had committed often before."""
        if self.cooperative:
            return None
        silences = (commits.silence(self.cells_before(each), self.joined_ms) for each in self.stayed)
        stops = [(each.last_ms, each.usual_ms) for each in silences if each.last_ms is not None]
        if not stops:
            return None
        begun_ms, usual_ms = min(stops, key=lambda stop: stop[0])
        timeout_ms = max(member.rebalance_timeout_ms for member in self.old.values())
        if usual_ms is None or usual_ms * OFTEN > timeout_ms:
            return None
        longest_ms = timeout_ms + usual_ms + NOTICE_MS + POLL_CHECK_MS
        if not timeout_ms - SLACK_MS <= self.written_ms - begun_ms <= longest_ms:
            return None
        return WaitedOutRound(begun_ms, timeout_ms)

    def last_commit_ms(self, commits: CommitTimes, member_id: str) -> int | None:
        """Of a member of the generation before, in that generation."""
        if member_id not in self._last_ms:
            self._last_ms[member_id] = commits.silence(self.cells_before(member_id), self.joined_ms).last_ms
        return self._last_ms[member_id]

    def heard_ms(self, commits: CommitTimes, member_id: str) -> int:
        """The last sign of life of a member of the generation before."""
        last_ms = self.last_commit_ms(commits, member_id)
        return min(self.joined_ms if last_ms is None else last_ms, self.written_ms)

    def begun_ms(self, commits: CommitTimes) -> int:
        """The latest moment at which the rebalance can have begun, as far as commits tell: eager members commit what
        they have read when they hear of it, and nothing after. Cooperative ones go on."""
        if self.cooperative:
            return self.written_ms
        heard = [self.last_commit_ms(commits, each) for each in self.stayed]
        return min([self.written_ms, *(each for each in heard if each is not None)])

    def shares_names(self, member: MemberRecord) -> bool:
        """Whether a member that stayed goes by the same client id and host, so that these do not tell who it is."""
        if member.group_instance_id:
            return False
        names = member.client_id, member.client_host
        stayed = (self.new[each] for each in self.stayed)
        return any((each.client_id, each.client_host) == names for each in stayed)

    def difference(self, member_id: str) -> JoinDifference:
        name = self.now.protocol or ""
        old, new = self.old[member_id].subscription, self.new[member_id].subscription
        if old == new:
            return NO_DIFFERENCE
        return compare_joins((Protocol(name, old),), (Protocol(name, new),), name)

    @cached_property
    def topic_changes(self) -> tuple[TopicChange, ...]:
        """Topics with more or less partitions in shares and claims than there were.

        Of those that members subscribed to before and still do, and of those that all who stayed name now, or do not
        name any more: many clients name only topics that there are.
        """
        if not self.new or not self.old:
            return ()
        wanted = self._wanted_still | self._topics_of_all_changes()
        named, found = self.named, []
        for topic in sorted(wanted):
            before, count = self._partitions.get(topic, 0), named.get(topic, 0)
            if count == before or topic in self.learned_topics:
                continue
            kind = TopicChangeKind.GREW if count > before else TopicChangeKind.REMADE
            if not before or not count:
                kind = TopicChangeKind.MADE if count else TopicChangeKind.DELETED
            found.append(TopicChange(topic, kind, before, count, self.written_ms))
        return tuple(found)

    @cached_property
    def learned_topics(self) -> frozenset[str]:
        """Topics that members named first in the generation before, or just now, and that its plan left out: clients
        look up what their members read after they have become its leader, and plan again, some only after a round
        more."""
        wanted = self._wanted_still
        return frozenset(each for each in wanted & self.named.keys() - self._awaited if not self._partitions.get(each))

    def _topics_of_all_changes(self) -> frozenset[str]:
        """Topics that each of several members has begun, or ceased, to name."""
        if len(self.stayed) < SEVERAL:
            return frozenset()
        said = [self.difference(each) for each in self.stayed]
        begun = frozenset.intersection(*(each.topics_added for each in said))
        return begun | frozenset.intersection(*(each.topics_removed for each in said))

    def is_without_partitions(self, topic: str) -> bool:
        """Nobody has had any of the topic since the generation before, or has now."""
        return not self._partitions.get(topic) and topic not in self.named

    def is_read_still(self, topics: Iterable[str]) -> bool:
        """Whether members have partitions of one of them."""
        return not self.named.keys().isdisjoint(topics)

    @cached_property
    def _wanted_still(self) -> frozenset[str]:
        """What members subscribed to before, and still do."""
        return wanted_topics(self.before) & wanted_topics(self.now)

    def member_plans(self, only: str = "") -> tuple[MemberPlan, ...]:
        return tuple(
            MemberPlan(
                member.member_id,
                member.client_id,
                member.client_host,
                member.group_instance_id,
                tuple(sorted(self.plan[member.member_id].items())),
            )
            for member in self.now.members
            if not only or member.member_id == only
        )

    def snapshot_json(self) -> str:
        """The assignor's input, with the partitions that shares and claims name; "": it cannot be read.

        A cooperative plan gives nobody what it withholds, and its owner still claims it.
        """
        if self.now.protocol_type != CONSUMER or not self.new:
            return ""
        subscriptions = {each.member_id: (each.group_instance_id, each.subscription) for each in self.now.members}
        rebuilt = rebuilt_snapshot(self.now.protocol or "", subscriptions, self.named)
        return "" if rebuilt is None else rebuilt.to_json()


def wanted_topics(stored: GroupStored) -> frozenset[str]:
    """What members subscribe to."""
    return frozenset().union(*{topics for each in stored.members if (topics := topics_of(each.subscription))})


def named_partitions(stored: GroupStored, known: Mapping[str, int] = NONE_KNOWN) -> dict[str, int]:
    """Topic -> partitions, as far as members' shares and claims name them. known: before; where claims alone name
    fewer, the others are of an owner that went, and nothing says that the topic is another one now."""
    counts = partition_counts(plan_of(stored))
    given = set(counts)
    for member in stored.members if stored.protocol_type == CONSUMER else ():
        for topic, partitions in owned_of(member.subscription).items():
            counts[topic] = max(counts.get(topic, 0), max(partitions, default=-1) + 1)
    for topic, count in counts.items():
        if topic not in given and count:
            counts[topic] = max(count, known.get(topic, 0))
    return counts


def plan_of(stored: GroupStored) -> Plan:
    """Shares of partitions; those of groups of another protocol, such as Kafka Connect's, are of other things."""
    if stored.protocol_type != CONSUMER:
        return {member.member_id: {} for member in stored.members}
    return {member.member_id: assignment_of(member.assignment) for member in stored.members}


def partition_counts(plan: Plan) -> dict[str, int]:
    """Topic -> partitions, as far as the plan gives them out."""
    counts: dict[str, int] = {}
    for share in plan.values():
        for topic, partitions in share.items():
            counts[topic] = max(counts.get(topic, 0), max(partitions, default=-1) + 1)
    return counts
