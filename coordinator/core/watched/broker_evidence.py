"""What a broker's log adds to the rebalances of groups that it coordinates: causes that its records do not tell.

Sentences are put beside an entry by generations and by member ids, which are unique. The log's clock decides nothing:
its zone is not in the log. It is the quarter of an hour that makes the end of a rebalance fall on its record.
"""

from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from muster.coordinator.core.groups.member_causes import cause_from_reason
from muster.coordinator.core.groups.member_history import HOW_GONE
from muster.coordinator.core.model.ledger import (
    MAX_ALSO,
    RebalanceTrigger,
    further_trigger,
    trigger_by_member,
)
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Incarnation,
    PartitionMove,
    RebalanceEntry,
    WaitEnd,
)
from muster.coordinator.core.watched.broker_sentences import MAX_LINE, BrokerSentence, SentenceKind, read_sentence
from muster.coordinator.core.watched.endings import WENT_SOMEHOW, WHICH_CAME_FIRST

MAX_SENTENCES = 100_000
"""Of all groups; the oldest go."""
MAX_OF_ROUND = 100
"""Sentences on one rebalance."""

QUARTER_MS = 15 * 60 * 1000
MAX_DISTANCE_MS = 60_000
"""Between the end of a rebalance in the log and on record, zones aside."""

CLOSING = (SentenceKind.STABILIZED, SentenceKind.EMPTIED, SentenceKind.EPOCH)

CAUSES = {
    SentenceKind.LEFT: Cause.MEMBER_LEFT,
    SentenceKind.EXPIRED: Cause.SESSION_EXPIRED,
    SentenceKind.LATE_JOIN: Cause.REBALANCE_TIMEOUT,
    SentenceKind.LATE_SYNC: Cause.SYNC_TIMEOUT,
    SentenceKind.LATE_RELEASE: Cause.REBALANCE_TIMEOUT,
}
"""Of sentences that end a member."""

WHAT = {
    SentenceKind.JOINED: "joined",
    SentenceKind.LEFT: "left",
    SentenceKind.EXPIRED: "was not heard of any more",
    SentenceKind.LATE_JOIN: "did not rejoin in time",
    SentenceKind.LATE_SYNC: "did not fetch its share in time",
    SentenceKind.LATE_RELEASE: "did not give up its revoked partitions in time",
    SentenceKind.REPLACED: "restarted under its group.instance.id",
}

ENDINGS = (Cause.MEMBER_LEFT, Cause.SESSION_EXPIRED, Cause.POLL_TIMEOUT)
OWN_WORDS = "the client's own words, in the broker's log"

ENDS = {
    SentenceKind.LEFT: WaitEnd.LEFT,
    SentenceKind.EXPIRED: WaitEnd.EXPIRED,
    SentenceKind.LATE_JOIN: WaitEnd.NEVER,
    SentenceKind.LATE_SYNC: WaitEnd.EXPIRED,
    SentenceKind.LATE_RELEASE: WaitEnd.EXPIRED,
}

WHY_FREE = {
    SentenceKind.LEFT: "its owner left the group",
    SentenceKind.EXPIRED: "its owner's session expired",
    SentenceKind.LATE_JOIN: "its owner did not rejoin within the rebalance timeout",
    SentenceKind.LATE_SYNC: "its owner did not sync within the rebalance timeout",
    SentenceKind.LATE_RELEASE: "its owner did not give it up within the rebalance timeout",
}

RECORDED_CAUSES = (
    Cause.MEMBER_JOINED,
    Cause.SUBSCRIPTION_CHANGED,
    Cause.PARTITIONS_CHANGED,
    Cause.PROTOCOL_CHANGED,
    Cause.ASSIGNOR_CHANGED,
    Cause.REVOCATION_FOLLOW_UP,
)
"""That stand on record, mostly: then at most that one of them came first is inferred."""


@dataclass(slots=True)
class LogRound:
    """What the log says between two generations or epochs, old and new; None: it does not say which."""

    old: int | None
    new: int | None = None
    sentences: list[BrokerSentence] = field(default_factory=list)
    end: BrokerSentence | None = None
    topics_changed: bool = False
    """The epoch came with another hash of the group's topics than the one before."""

    @property
    def member_ids(self) -> set[str]:
        return {member_id for sentence in self.sentences for member_id in sentence.member_ids}

    def keep(self, sentence: BrokerSentence) -> bool:
        """False: it has enough."""
        if len(self.sentences) >= MAX_OF_ROUND and sentence.kind not in CLOSING:
            return False
        self.sentences.append(sentence)
        return True

    def is_within(self, old: int, new: int) -> bool:
        """Whether all of it is of the rebalance from one generation to the other."""
        return self.old is not None and old <= self.old < new and (self.new is None or self.old < self.new <= new)

    def may_hold(self, old: int, new: int) -> bool:
        """Whether the rebalance may be in it, among others: the log does not tell of each epoch, nor of all times."""
        return (self.old is None or self.old <= old) and (self.new is None or new <= self.new)


@dataclass(slots=True)
class GroupSentences:
    """One group's sentences, oldest first."""

    rounds: list[LogRound] = field(default_factory=lambda: [LogRound(None)])
    ended: dict[str, SentenceKind | None] = field(default_factory=dict)
    """How a member ended; None: in more than one way."""
    _hash: str = ""

    def add(self, sentence: BrokerSentence) -> bool:
        """Into the round that it is of; False: that round has enough, or is not known."""
        current = self.rounds[-1]
        if sentence.kind is SentenceKind.ASSIGNED:
            before = self.rounds[-2] if len(self.rounds) > 1 else current
            if before.new == sentence.generation:
                before.end = sentence
                return before.keep(sentence)
            return False  # the log begins with it
        if sentence.kind is SentenceKind.PREPARING:
            if any(each.kind is SentenceKind.PREPARING for each in current.sentences):
                current = self._begin(None)  # the log has a gap: that round's end is missing
            current.old = sentence.generation
        kept = current.keep(sentence)
        if kept and sentence.kind in ENDS:
            for member_id in sentence.member_ids:
                known = self.ended.setdefault(member_id, sentence.kind)
                self.ended[member_id] = known if known is sentence.kind else None
        if sentence.kind in CLOSING:
            current.new, current.end = sentence.generation, sentence
            if sentence.kind is SentenceKind.EPOCH:
                current.topics_changed = bool(self._hash) and sentence.metadata_hash not in (self._hash, "", "0")
                self._hash = sentence.metadata_hash
            self._begin(sentence.generation)
        return kept

    def forget_oldest(self) -> bool:
        """Forget one sentence; whether that was the last one."""
        while len(self.rounds) > 1 and not self.rounds[0].sentences:
            self.rounds.pop(0)
        if self.rounds[0].sentences:
            for member_id in self.rounds[0].sentences.pop(0).member_ids:
                self.ended.pop(member_id, None)
        return not any(each.sentences for each in self.rounds)

    def _begin(self, old: int | None) -> LogRound:
        self.rounds.append(LogRound(old))
        return self.rounds[-1]


class BrokerEvidence:
    """The sentences of a log, by group."""

    def __init__(self, zone_ms: int | None = None) -> None:
        """zone_ms: how much the log's clock is ahead of UTC; None: it is found out."""
        self._zone_ms = zone_ms
        self._groups: dict[str, GroupSentences] = {}
        self._kept: deque[str] = deque()
        """The group of each sentence, oldest first."""
        self.sentences = 0
        self.skipped: Counter[str] = Counter()
        """What was passed over, and how often."""

    def take_line(self, line: str) -> None:
        if len(line) > MAX_LINE:
            self.skipped["line that is too long"] += 1
            return
        sentence = read_sentence(line)
        if sentence is not None:
            self.take_sentence(sentence)

    def take_sentence(self, sentence: BrokerSentence) -> None:
        self.sentences += 1
        if not self._groups.setdefault(sentence.group_id, GroupSentences()).add(sentence):
            self.skipped["sentence on a rebalance that has too many, or that the log does not begin with"] += 1
            return
        self._kept.append(sentence.group_id)
        if len(self._kept) > MAX_SENTENCES:
            self.skipped["sentence older than those that are kept"] += 1
            oldest = self._kept.popleft()
            if self._groups[oldest].forget_oldest():
                del self._groups[oldest]

    def take_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.take_line(line)

    def settle(self, group_id: str, entry: RebalanceEntry) -> RebalanceEntry:
        """The entry with what the log says of its rebalance; the same entry if it says nothing."""
        known = self._groups.get(group_id)
        if known is None or entry.generation <= entry.previous_generation:
            return entry
        told = told_of(entry, known.rounds)
        if told is None:
            return entry
        zone_ms = self._zone_ms if self._zone_ms is not None else zone_of(told, entry)
        return settle_entry(entry, told, known.ended, zone_ms)


# Which sentences are of an entry
# -------------------------------


def named_members(entry: RebalanceEntry) -> set[str]:
    """All members that the entry names."""
    named = {entry.culprit, *(trigger.culprit for trigger in entry.triggers)}
    named.update(member.member_id for member in entry.members)
    named.update(name for move in entry.moves for name in (move.source, move.target))
    named.update(name for each in entry.incarnations for name in (each.member_id, each.previous_id))
    return named - {""}


def runs_within(rounds: Iterable[LogRound], old: int, new: int) -> list[list[LogRound]]:
    """The rounds from one generation to the other. Those that follow each other are together: some get no plan."""
    runs: list[list[LogRound]] = []
    for each in rounds:
        if not each.is_within(old, new):
            continue
        if runs and runs[-1][-1].new is not None and runs[-1][-1].new == each.old:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def told_of(entry: RebalanceEntry, rounds: Sequence[LogRound]) -> LogRound | None:
    """All that the log says of this rebalance; None: nothing that is surely of it."""
    named = named_members(entry)
    old, new = entry.previous_generation, entry.generation
    runs = [run for run in runs_within(rounds, old, new) if any(each.member_ids & named for each in run)]
    if len(runs) == 1:
        told = LogRound(old, new, [sentence for each in runs[0] for sentence in each.sentences], runs[0][-1].end)
        told.topics_changed = any(each.topics_changed for each in runs[0])
        return told
    culprits = {entry.culprit, *(trigger.culprit for trigger in entry.triggers)} - {""}
    found = [
        sentence
        for each in rounds
        if each.may_hold(old, new)
        for sentence in each.sentences
        if sentence.kind in CAUSES and culprits.intersection(sentence.member_ids)
    ]
    times = Counter(member_id for sentence in found for member_id in sentence.member_ids)
    once = [sentence for sentence in found if max(times[each] for each in sentence.member_ids) == 1]
    return LogRound(old, new, once) if once else None


def zone_of(told: LogRound, entry: RebalanceEntry) -> int | None:
    """How much the log's clock is ahead of UTC, in ms; None: the end of the rebalance does not tell."""
    if told.end is None or told.end.wall_ms < 0:
        return None
    if told.end.zoned:
        return 0
    ended_ms = entry.started_at_ms if told.end.kind is SentenceKind.EPOCH else entry.ended_at_ms
    zone_ms = round((told.end.wall_ms - ended_ms) / QUARTER_MS) * QUARTER_MS
    return zone_ms if abs(told.end.wall_ms - zone_ms - ended_ms) <= MAX_DISTANCE_MS else None


# What they say of it
# -------------------

CAME, AGAIN, WENT = "came", "again", "went"

PARTS = {
    SentenceKind.JOINED: CAME,
    SentenceKind.REPLACED: CAME,
    SentenceKind.REJOINED: AGAIN,
    SentenceKind.TOO_LARGE: AGAIN,
    **dict.fromkeys(CAUSES, WENT),
}


@dataclass(slots=True)
class SaidTrigger:
    """One member's part in a rebalance, as the log tells it. first: the rebalance began with it."""

    kind: SentenceKind
    member_id: str
    sentence: BrokerSentence
    first: bool = False


def said_triggers(told: LogRound) -> list[SaidTrigger]:
    """Each part of each member once, in the order of the log; at their head what the rebalance began with."""
    said: dict[tuple[str, str], SaidTrigger] = {}
    first: SaidTrigger | None = None
    of_epochs = any(each.kind is SentenceKind.EPOCH for each in told.sentences)
    for sentence in told.sentences:
        kind = sentence.about or sentence.kind
        part = PARTS.get(kind)
        if part is None:
            continue
        begins = sentence.kind is SentenceKind.PREPARING or (of_epochs and kind is not SentenceKind.REPLACED)
        subjects = sentence.member_ids[:1] if kind is SentenceKind.REPLACED else sentence.member_ids or ("",)
        for member_id in subjects:
            trigger = said.setdefault((member_id, part), SaidTrigger(kind, member_id, sentence))
            if begins and first is None:
                first, trigger.first = trigger, True
    return sorted(said.values(), key=lambda each: not each.first)


class SaidMember(NamedTuple):
    """A member as far as the entry knows it."""

    id: str
    client_id: str = ""
    client_host: str = ""
    client_software: str = ""


@dataclass(slots=True, eq=False)
class KnownTrigger:
    """One that the entry has. becomes: what the log makes of it."""

    trigger: RebalanceTrigger
    at_ms: int
    becomes: "KnownTrigger | None" = None


def known_triggers(entry: RebalanceEntry) -> list[KnownTrigger]:
    """The entry's cause, and what else asked for the rebalance."""
    main = RebalanceTrigger(
        cause=entry.cause,
        detail=entry.detail,
        culprit=entry.culprit,
        client_id=entry.culprit_client_id,
        client_host=entry.culprit_client_host,
        client_reason=entry.client_reason,
        certainty=entry.certainty,
        evidence=entry.evidence,
    )
    further = [
        KnownTrigger(
            RebalanceTrigger(
                cause=each.cause,
                detail=each.detail,
                culprit=each.culprit,
                client_id=each.culprit_client_id,
                client_host=each.culprit_client_host,
                certainty=each.certainty,
            ),
            each.at_ms,
        )
        for each in entry.triggers
    ]
    return [KnownTrigger(main, entry.started_at_ms), *further]


class SettledTriggers:
    """What set a rebalance off, by its records and by the log. ordered: the cause first. begun: the log says which."""

    def __init__(self, entry: RebalanceEntry, told: LogRound, zone_ms: int | None) -> None:
        self._zone_ms = zone_ms
        self._known = known_triggers(entry)
        self._newcomers = {each.previous_id: each.member_id for each in entry.incarnations}
        self._members = {
            each.member_id: SaidMember(each.member_id, each.client_id, each.client_host) for each in entry.members
        }
        for each in self._known:
            trigger = each.trigger
            member = SaidMember(trigger.culprit, trigger.client_id, trigger.client_host)
            self._members.setdefault(trigger.culprit, member)
        self.begun = False
        found: list[KnownTrigger] = []
        for said in said_triggers(told):
            settled = self._settle(said)
            if settled is not None:
                found.append(settled)
                self.begun = self.begun or said.first
        self.ordered = self._with_topics(told, self._in_order(found))

    def time_of(self, sentence: BrokerSentence, otherwise_ms: int) -> int:
        """When the broker said so, in ms of the epoch, as far as its log's zone is known."""
        if sentence.wall_ms < 0 or (self._zone_ms is None and not sentence.zoned):
            return otherwise_ms
        return sentence.wall_ms - (0 if sentence.zoned else self._zone_ms or 0)

    # Order
    # -----

    def _in_order(self, found: list[KnownTrigger]) -> list[KnownTrigger]:
        if not self.begun:
            settled = list(dict.fromkeys(each.becomes or each for each in self._known))
            return settled + [each for each in found if each not in settled]
        rest = [each for each in self._known if each.becomes is None]
        return found + [KnownTrigger(without_doubt_of_order(each.trigger), each.at_ms) for each in rest]

    def _with_topics(self, told: LogRound, ordered: list[KnownTrigger]) -> list[KnownTrigger]:
        """An epoch that came with other topics, and for no member, came for the topics."""
        open_causes = {each.trigger.cause for each in self._known if each.becomes is None}
        if self.begun or not told.topics_changed or open_causes - {Cause.PARTITIONS_CHANGED, Cause.UNSPECIFIED}:
            return ordered
        epoch = told.end
        if epoch is None or Cause.PARTITIONS_CHANGED in open_causes:
            return sorted(ordered, key=lambda each: each.trigger.cause is not Cause.PARTITIONS_CHANGED)
        what = "topics that members read have changed (their metadata hash is another one)"
        trigger = RebalanceTrigger(Cause.PARTITIONS_CHANGED, what, certainty=Certainty.SAID, evidence=epoch.text)
        first = KnownTrigger(trigger, self.time_of(epoch, self._known[0].at_ms))
        return [first, *(each for each in ordered if each.trigger.cause is not Cause.UNSPECIFIED)]

    # One member's part
    # -----------------

    def _settle(self, said: SaidTrigger) -> KnownTrigger | None:
        """The trigger as it is with this sentence; None: the sentence adds nothing."""
        if said.kind in CAUSES:
            return self._settle_end(said)
        if said.kind is SentenceKind.JOINED:
            return self._settle_join(said)
        if said.kind is SentenceKind.REPLACED:
            return self._settle_replacement(said)
        if said.kind is SentenceKind.TOO_LARGE:
            what = "the group was loaded with more members than its greatest size allows"
            return self._new(said, RebalanceTrigger(Cause.GROUP_OVER_SIZE, what))
        return self._settle_rejoin(said)

    def _settle_end(self, said: SaidTrigger) -> KnownTrigger:
        trigger = self._by_member(said, CAUSES[said.kind], WHAT[said.kind])
        own = self._of(said.member_id, ENDINGS)
        newcomer = self._newcomers.get(said.member_id, "")
        back = self._of(newcomer, (Cause.POLL_TIMEOUT,)) if own is None and newcomer else None
        if back is not None and said.kind is SentenceKind.LEFT and trigger.cause is Cause.MEMBER_LEFT:
            return self._become(said, with_quote(back.trigger, said.sentence), back)  # a client that is late leaves
        return self._become(said, trigger, *(each for each in (own, back) if each is not None))

    def _settle_join(self, said: SaidTrigger) -> KnownTrigger:
        known = self._of(said.member_id, ())
        if known is None:
            return self._new(said, self._by_member(said, Cause.MEMBER_JOINED, WHAT[said.kind]))
        trigger = known.trigger
        if trigger.certainty is Certainty.INFERRED and trigger.cause in RECORDED_CAUSES and said.first:
            trigger = replace(trigger, certainty=Certainty.SAID, evidence=said.sentence.text)
        elif self.begun and trigger.cause in RECORDED_CAUSES:
            trigger = without_doubt_of_order(trigger)
        elif trigger.certainty is Certainty.INFERRED:
            trigger = with_quote(trigger, said.sentence)
        return self._become(said, trigger, known)

    def _settle_replacement(self, said: SaidTrigger) -> KnownTrigger | None:
        new, old = said.sentence.member_ids
        known = [self._of(old, ENDINGS), self._of(new, (Cause.MEMBER_RESTARTED,))]
        mine = [each for each in known if each is not None]
        if not mine:
            return None
        return self._become(said, self._by_member(said, Cause.STATIC_MEMBER_REPLACED, WHAT[said.kind]), *mine)

    def _settle_rejoin(self, said: SaidTrigger) -> KnownTrigger | None:
        """Why a member joined again stands on record, or in its own words."""
        known = self._of(said.member_id, ())
        if known is not None:
            return self._become(said, known.trigger, known)
        only = self._known[0]
        if len(self._known) > 1 or only.trigger.certainty is not Certainty.UNKNOWN:
            return None
        leads = "eader " in said.sentence.text
        otherwise = Cause.LEADER_REJOINED if leads else Cause.MEMBER_METADATA_CHANGED
        cause = cause_from_reason(said.sentence.reason, otherwise)
        trigger = self._by_member(said, cause, "rejoined as leader" if leads else "rejoined")
        return self._become(said, trigger, only)

    def _of(self, member_id: str, causes: Container[Cause]) -> KnownTrigger | None:
        """The member's trigger that is still to be settled, of one of these causes; () stands for any."""
        return next(
            (
                each
                for each in self._known
                if each.becomes is None
                and each.trigger.culprit == member_id
                and (causes == () or each.trigger.cause in causes)
            ),
            None,
        )

    def _by_member(self, said: SaidTrigger, cause: Cause, what: str) -> RebalanceTrigger:
        reason = said.sentence.reason
        member = self._members.get(said.member_id) or SaidMember(said.member_id)
        trigger = trigger_by_member(cause_from_reason(reason, cause), member, what, reason)
        own_words = cause_from_reason(reason, Cause.UNSPECIFIED) is not Cause.UNSPECIFIED
        return replace(
            trigger,
            certainty=Certainty.INFERRED if own_words else Certainty.SAID,
            evidence=f"{OWN_WORDS}: {said.sentence.text}" if own_words else said.sentence.text,
        )

    def _new(self, said: SaidTrigger, trigger: RebalanceTrigger) -> KnownTrigger:
        said_by = replace(trigger, certainty=Certainty.SAID, evidence=said.sentence.text)
        return KnownTrigger(said_by, self.time_of(said.sentence, self._known[0].at_ms))

    def _become(self, said: SaidTrigger, trigger: RebalanceTrigger, *known: KnownTrigger) -> KnownTrigger:
        settled = KnownTrigger(trigger, self.time_of(said.sentence, self._known[0].at_ms))
        for each in known:
            each.becomes = settled
        return settled


def with_quote(trigger: RebalanceTrigger, sentence: BrokerSentence) -> RebalanceTrigger:
    """Inferred as before, with what the broker says of it."""
    before = f"{trigger.evidence}; " if trigger.evidence else ""
    return replace(trigger, evidence=f'{before}the broker says: "{sentence.text}"')


def without_doubt_of_order(trigger: RebalanceTrigger) -> RebalanceTrigger:
    """A trigger that was inferred to be the first one, and is not."""
    if trigger.cause in RECORDED_CAUSES and trigger.evidence == WHICH_CAME_FIRST:
        return replace(trigger, certainty=Certainty.RECORDED, evidence="")
    return trigger


def settle_entry(
    entry: RebalanceEntry, told: LogRound, ended: Mapping[str, SentenceKind | None], zone_ms: int | None
) -> RebalanceEntry:
    """The entry with what the log says of its rebalance. ended: how members of the group ended, at any time."""
    settled = SettledTriggers(entry, told, zone_ms)
    main = settled.ordered[0].trigger
    further = settled.ordered[1 : MAX_ALSO + 1]
    began = next((each for each in told.sentences if each.kind is SentenceKind.PREPARING), None)
    began_ms = entry.started_at_ms if began is None else settled.time_of(began, entry.started_at_ms)
    gone = {
        each: sentence.kind for sentence in told.sentences if sentence.kind in CAUSES for each in sentence.member_ids
    }
    return replace(
        entry,
        cause=main.cause,
        detail=main.detail,
        culprit=main.culprit,
        culprit_client_id=main.client_id,
        culprit_client_host=main.client_host,
        client_reason=main.client_reason,
        certainty=main.certainty,
        evidence=main.evidence,
        also=tuple(each.trigger.detail for each in further),
        triggers=tuple(further_trigger(each.trigger, each.at_ms) for each in further),
        started_at_ms=min(began_ms, entry.ended_at_ms),
        moves=tuple(settle_move(move, gone) for move in entry.moves),
        incarnations=tuple(settle_return(each, ended) for each in entry.incarnations),
    )


def settle_move(move: PartitionMove, gone: Mapping[str, SentenceKind]) -> PartitionMove:
    """With why its owner had gone, if it was told that it left or expired."""
    kind = gone.get(move.source)
    if kind is None:
        return move
    for why in (WHY_FREE[SentenceKind.LEFT], WHY_FREE[SentenceKind.EXPIRED], WENT_SOMEHOW):
        if move.why.startswith(why):
            return replace(move, why=WHY_FREE[kind] + move.why.removeprefix(why))
    return move


def settle_return(incarnation: Incarnation, ended: Mapping[str, SentenceKind | None]) -> Incarnation:
    """With how its former id had ended."""
    kind = ended.get(incarnation.previous_id)
    return incarnation if kind is None else replace(incarnation, how=HOW_GONE[ENDS[kind]])
