"""What has happened to a group: entries of its ledger that belong together are one incident, told in one sentence.

A pure function of the entries, and of the node's stalls and the moves of its coordinator. Entries are taken in order;
each belongs to the newest incident that takes it, or begins one. An incident that ended long before an entry
(`LOOP_MS`) never takes it, so that what has been told of the past stays.

A member is known by its identity here (client id, group.instance.id and host): it keeps that when it comes back under
another member id.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from typing_extensions import TypedDict

from muster.coordinator.observability.views.formatting import duration, listed, plural
from muster.coordinator.observability.views.ledger import (
    certainty_word,
    entry_document,
    is_rebalance,
    surely_unowned_seconds,
    took_ms,
)
from muster.coordinator.observability.views.member_names import KnownMember, Names, names_of
from muster.coordinator.observability.views.sentences import (
    OPERATOR_CHANGES,
    capitalize_sentence,
    cause_name,
    describe_topic_change,
    outcome_name,
    sentence,
)
from muster.coordinator.rpc.v1.ledger_pb2 import (
    TOPIC_CHANGE_KIND_DELETED,
    TOPIC_CHANGE_KIND_REMADE,
    CoordinatorMove,
    FurtherTrigger,
    NodeStall,
    Rebalance,
    TopicChange,
)

SOON_MS: Final = 30_000
"""What happens to members so soon after one another belongs together."""
ROLLING_MS: Final = 120_000
"""After a member is back, the next one of a rolling restart goes within that."""
LOOP_MS: Final = 600_000
"""A member that comes back, or goes again, within that is the same story. No incident takes what comes later."""
AFTER_NODE_MS: Final = 15_000
"""Members that go or come back so soon after a stall or a move of the coordinator did so for it."""
LOOP_TIMES: Final = 3
"""Who restarted so often within one incident restarts in a loop."""
STORM: Final = 6
"""More rebalances without a common cause are a storm."""
MOST_OPEN: Final = 8
"""So many incidents, newest first, are asked whether an entry is theirs."""

# What an entry is about
# ----------------------

MEMBERS, TOPICS, ASSIGNORS, OPERATOR, SHARED, NODE, OTHER = (
    "members", "topics", "assignors", "operator", "shared", "node", "other",
)  # fmt: skip

ABOUT: Final = {
    **dict.fromkeys(("PARTITIONS_CHANGED", "SUBSCRIPTION_CHANGED"), TOPICS),
    **dict.fromkeys(
        ("PROTOCOLS_CHANGED", "PROTOCOL_CHANGED", "MEMBER_METADATA_CHANGED", "STATIC_MEMBER_METADATA_CHANGED"),
        ASSIGNORS,
    ),
    **dict.fromkeys(
        ("OPERATOR", "THAW", "CANARY", "DEPLOY_OVER", "PIN_CHANGED", "DRAINED", "ASSIGNOR_CHANGED"), OPERATOR
    ),
    **dict.fromkeys(("NODE_STALLED", "COORDINATOR_FAILOVER"), NODE),
    **dict.fromkeys(("LAG_IMBALANCE", "ASSIGNOR_FAILED", "BROKERS_CHANGED", "WEIGHT_CHANGED", "UNSPECIFIED"), OTHER),
    "INSTANCE_ID_SHARED": SHARED,
}
FOLLOW_UPS: Final = ("REVOCATION_FOLLOW_UP", "DELAY_OVER", "HANDOFF_TIMEOUT")
ARRIVALS: Final = ("MEMBER_JOINED", "MEMBER_RESTARTED", "STATIC_MEMBER_REPLACED")
STOPPED_POLLING: Final = "stopped polling"
STUCK: Final = "stopped polling and came back"
DEPARTURES: Final = {
    "MEMBER_LEFT": "left",
    "SESSION_EXPIRED": "stopped answering",
    "POLL_TIMEOUT": STOPPED_POLLING,
    "SYNC_TIMEOUT": "did not fetch its share",
    "REBALANCE_TIMEOUT": "did not rejoin",
    "MEMBER_FENCED": "was shut out",
    "GROUP_OVER_SIZE": "was one too many",
}

UNSURE: Final = "left or stopped answering"
"""Of a member that left with certainty `unknown`."""

OFFERS: Final = "offers other assignors: "
"""In the sentence of a member that came back with another list (`with_roll_out`)."""

INCARNATIONS: Final = {"left": "left", "expired": "stopped answering"}

Identity: TypeAlias = tuple[str, str, str]
"""Client id, group.instance.id and host."""


@dataclass(frozen=True, slots=True)
class MembersChange:
    """Who came and who went with an entry, by id; `how` tells of those who went.

    passing: former members that came back with it and were gone again before it was over.
    """

    came: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    how: Mapping[str, str] = field(default_factory=dict)
    there: tuple[str, ...] = ()
    """Who is in the plan and lives."""
    was_empty: bool = False
    emptied: bool = False


class GroupMembers:
    """Who lives, as far as the entries so far tell. A plan says it all; of what was overtaken, its culprit is known."""

    def __init__(self) -> None:
        self.identities: dict[str, Identity] = {}
        self._alive: set[str] | None = None
        self._dead: set[str] = set()
        self._given_up: set[str] = set()
        """Ids that came back under another one; their sessions may last, and plans may have them."""

    def look(self, entry: Rebalance) -> MembersChange:
        self._note(entry)
        self._given_up.update(back.previous_id for back in entry.incarnations)
        settled = outcome_name(entry) in ("COMPLETED", "EMPTIED")
        came, how = self._told(entry)
        if self._alive is None:
            # The ledger begins with it: whoever did not come with it may have been there for long.
            if not settled:
                return MembersChange(came=tuple(sorted(came)), gone=tuple(sorted(how)), how=how)
            there = {member.member_id for member in entry.members}
            begins = entry.number == 1 and not had_partitions(entry)
            self._alive = set() if begins else (there - came - self._given_up) | set(how)
        before = self._alive
        now = (before | came) - set(how)
        if settled:
            # An id that died before its next process came is gone with that at the latest.
            now = {member.member_id for member in entry.members} - self._given_up
        self._alive = now
        gone = (before | (set(how) - self._dead)) - now
        passing = [back.member_id for back in entry.incarnations if back.member_id not in now | before]
        self._dead = (self._dead | gone | {*passing}) - now
        return MembersChange(
            came=tuple(sorted(now - before)),
            passing=tuple(passing),
            gone=tuple(sorted(gone - {*passing})),
            how=how,
            there=tuple(member.member_id for member in entry.members if member.member_id in now),
            was_empty=not before,
            emptied=bool(before) and not now,
        )

    @staticmethod
    def _told(entry: Rebalance) -> tuple[set[str], dict[str, str]]:
        """Who came by what the entry says, and who went, with how."""
        came: set[str] = set()
        how: dict[str, str] = {}
        triggers: list[Rebalance | FurtherTrigger] = [entry, *entry.triggers]
        for told in triggers:
            if told.culprit and cause_name(told) in ARRIVALS:
                came.add(told.culprit)
            elif told.culprit and cause_name(told) in DEPARTURES:
                how[told.culprit] = UNSURE if is_unsure(told) else DEPARTURES[cause_name(told)]
        for back in entry.incarnations:
            came.add(back.member_id)
            how.setdefault(back.previous_id, INCARNATIONS.get(back.how, "went"))
        return came, how

    def _note(self, entry: Rebalance) -> None:
        known = self.identities
        if entry.culprit_client_id:
            known.setdefault(entry.culprit, (entry.culprit_client_id, "", entry.culprit_client_host))
        for trigger in entry.triggers:
            if trigger.culprit_client_id:
                known.setdefault(trigger.culprit, (trigger.culprit_client_id, "", trigger.culprit_client_host))
        for member in entry.members:
            known[member.member_id] = (
                member.client_id or member.member_id,
                member.group_instance_id,
                member.client_host,
            )
        for back in entry.incarnations:
            if back.member_id in known:
                known.setdefault(back.previous_id, known[back.member_id])

    def identity(self, member_id: str) -> Identity:
        return self.identities.get(member_id, (member_id, "", ""))


def is_unsure(told: Rebalance | FurtherTrigger) -> bool:
    return cause_name(told) == "MEMBER_LEFT" and certainty_word(told) == "unknown"


def had_partitions(entry: Rebalance) -> bool:
    """Whether members had partitions before it: a group of ZooKeeper may be older than its ledger."""
    gained = {(move.target, move.topic, move.partition) for move in entry.moves}
    return any(move.source for move in entry.moves) or any(
        (member.member_id, share.topic, partition) not in gained
        for member in entry.members
        for share in member.assigned
        for partition in share.partitions
    )


# Entries that belong together
# ----------------------------


@dataclass(slots=True)
class OpenIncident:
    """An incident as it is put together."""

    about: str
    began_ms: int
    ended_ms: int
    entries: list[Rebalance] = field(default_factory=list)
    cause: NodeStall | CoordinatorMove | None = None
    was_empty: bool = False
    emptied: bool = False
    missing: Counter[Identity] = field(default_factory=Counter)
    """Who went and is not back."""
    new: Counter[Identity] = field(default_factory=Counter)
    """Who came, and had not been there."""
    gone_ids: set[str] = field(default_factory=set)
    restarts: list[Identity] = field(default_factory=list)
    restarted_at_ms: list[int] = field(default_factory=list)
    """Of each of the restarts."""
    away_ms: list[int] = field(default_factory=list)
    how: dict[Identity, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    most_missing: int = 0
    at_once: Counter[Identity] = field(default_factory=Counter)
    gone_at: dict[Identity, list[int]] = field(default_factory=lambda: defaultdict(list))
    restarted_after_empty: bool = False
    storms: bool = False

    def absorb(self, other: "OpenIncident") -> None:
        """What it has is this one's, too."""
        self.entries.extend(other.entries)
        self.ended_ms = max(self.ended_ms, other.ended_ms)
        self.emptied |= other.emptied
        self.missing += other.missing
        self.new += other.new
        self.gone_ids |= other.gone_ids
        self.at_once |= other.at_once
        for who, how in other.how.items():
            self.how[who] += how
        for who, times in other.gone_at.items():
            self.gone_at[who] += times

    def add(self, entry: Rebalance, change: MembersChange, of: Callable[[str], Identity]) -> None:
        if not self.entries:
            self.was_empty = change.was_empty
        self.entries.append(entry)
        self.ended_ms = max(self.ended_ms, entry.started_at_ms + took_ms(entry), entry.ended_at_ms)
        away = {back.member_id: back.away_ms for back in entry.incarnations}
        for member in change.gone:
            who = of(member)
            self.missing[who] += 1
            self.gone_at[who].append(entry.started_at_ms)
            self.how[who][change.how.get(member, "went")] += 1
        self.most_missing = max(self.most_missing, self.missing.total())
        self.gone_ids.update(change.gone, change.passing)
        for member in change.passing:
            self.restarts.append(of(member))
            self.restarted_at_ms.append(entry.started_at_ms)
            self.away_ms.append(away[member])
        for member in change.came:
            who = of(member)
            if self.missing[who]:
                self.missing[who] -= 1
                gone_ms = self.gone_at[who].pop(0)
                self.restarts.append(who)
                self.restarted_at_ms.append(entry.started_at_ms)
                self.away_ms.append(away.get(member, max(0, entry.started_at_ms - gone_ms)))
            else:
                self.new[who] += 1
            self.restarted_after_empty |= self.emptied
        self.emptied |= change.emptied
        for who, count in Counter(map(of, change.there)).items():
            self.at_once[who] = max(self.at_once[who], count)

    @property
    def last_rebalance(self) -> Rebalance | None:
        return next((entry for entry in reversed(self.entries) if is_rebalance(entry)), None)

    def takes(self, entry: Rebalance, about: str, change: MembersChange, of: Callable[[str], Identity]) -> bool:
        gap_ms = entry.started_at_ms - self.ended_ms
        if gap_ms > LOOP_MS or self.cause is not None or not self.entries:
            return False
        came, gone = ({of(member) for member in members} for members in (change.came, change.gone))
        if about == MEMBERS and not came and not gone and entry.culprit in self.gone_ids:
            return True  # the session of an id that is known to be dead
        if any(self.missing[who] for who in came) and (self.about == MEMBERS or gap_ms <= SOON_MS):
            return True
        if self.about != about:
            return False
        if about == MEMBERS:
            return self._takes_members(entry, gap_ms, came, gone)
        if about in (ASSIGNORS, SHARED):
            return True
        return gap_ms <= SOON_MS and (about != OTHER or entry.cause == self.entries[-1].cause)

    def _takes_members(self, entry: Rebalance, gap_ms: int, came: set[Identity], gone: set[Identity]) -> bool:
        if self.storms and gap_ms <= SOON_MS:
            return True
        restarted = set(self.restarts)
        if not came and not gone and certainty_word(entry) == "unknown":
            # Somebody plans again after a change, nobody knows why: once, or it is a story of its own.
            return gap_ms <= SOON_MS and certainty_word(self.entries[-1]) != "unknown"
        if len(gone) == 1 and gone == restarted:
            return True
        if came and not gone:
            # A start goes on, also one after everybody had gone.
            return gap_ms <= SOON_MS and (self.emptied or not (self.restarts or self.missing.total()))
        if not gone or self.new.total() or self.emptied or gone & restarted:
            # In a rolling restart each goes once.
            return False
        # Who goes with others, or after one who is back already, as in a rolling restart.
        back = bool(self.restarts) and not self.missing.total()
        return gap_ms <= (ROLLING_MS if back else SOON_MS)

    @property
    def mixes(self) -> bool:
        """Whether it may be part of a storm: members came and went, and that is no story of its own."""
        start = self.was_empty and self.new.total() and not self.missing.total()
        return self.about == MEMBERS and self.cause is None and not self.restarts and not start


def merge_storm(found: list[OpenIncident], latest: OpenIncident) -> OpenIncident:
    """The newest incidents, where they are too many in too short a time to be told one by one; else the latest."""
    row: list[OpenIncident] = []
    for each in reversed(found):
        after_ms = (row[-1].began_ms if row else each.ended_ms) - each.ended_ms
        if not each.mixes or after_ms > SOON_MS or each.began_ms < latest.began_ms - LOOP_MS:
            break
        row.append(each)
    if len(row) < 2 or sum(len(each.entries) for each in row) <= STORM:
        return latest
    first, *rest = reversed(row)
    for each in rest:
        first.absorb(each)
        found.remove(each)
    first.storms = True
    return first


def group_entries(
    entries: Iterable[Rebalance], stalls: Iterable[NodeStall] = (), moves: Iterable[CoordinatorMove] = ()
) -> tuple[list[OpenIncident], GroupMembers]:
    """Incidents in the order in which they began, and who the members are."""
    ordered = sorted(entries, key=lambda entry: entry.number)
    members = GroupMembers()
    of = members.identity
    nodes = [*map(node_incident, stalls), *map(node_incident, moves)]
    found: list[OpenIncident] = []
    before: OpenIncident | None = None
    for entry in ordered:
        change = members.look(entry)
        about = subject_of(entry)
        taken = next((node for node in nodes if is_of_node(node, entry, about, change)), None)
        if taken is None:
            taken = continued(before, entry)
        if taken is None:
            taken = next((each for each in found[: -MOST_OPEN - 1 : -1] if each.takes(entry, about, change, of)), None)
        if taken is None:
            taken = OpenIncident(about, entry.started_at_ms, entry.started_at_ms)
            found.append(taken)
        taken.add(entry, change, of)
        taken = merge_storm(found, taken) if found and taken is found[-1] else taken
        before = taken if is_rebalance(entry) else before
    return sorted([*found, *nodes], key=lambda each: each.began_ms), members


def subject_of(entry: Rebalance) -> str:
    if outcome_name(entry) in OPERATOR_CHANGES and outcome_name(entry) != "MEMBER_CHANGED":
        return OPERATOR
    if entry.topics:
        return TOPICS
    return ABOUT.get(cause_name(entry), MEMBERS)


def continued(before: OpenIncident | None, entry: Rebalance) -> OpenIncident | None:
    """The incident of the rebalance before, where that was overtaken by this one, or this one only finishes it."""
    if before is None or not is_rebalance(entry) or entry.started_at_ms - before.ended_ms > LOOP_MS:
        return None
    last = before.last_rebalance
    overtaken = last is not None and outcome_name(last) == "SUPERSEDED"
    return before if overtaken or cause_name(entry) in FOLLOW_UPS else None


def node_incident(cause: NodeStall | CoordinatorMove) -> OpenIncident:
    if isinstance(cause, NodeStall):
        return OpenIncident(NODE, cause.ended_at_ms - cause.stalled_ms, cause.ended_at_ms, cause=cause)
    return OpenIncident(NODE, cause.last_heard_ms or cause.elected_ms, cause.serving_ms, cause=cause)


def is_of_node(node: OpenIncident, entry: Rebalance, about: str, change: MembersChange) -> bool:
    """Whether members went or came back because the node did not answer."""
    until_ms = node.ended_ms + AFTER_NODE_MS
    if not node.began_ms <= entry.started_at_ms <= until_ms:
        return False
    return about == NODE or (about == MEMBERS and bool(change.gone) and not change.was_empty)


# What is told
# ------------


@dataclass(frozen=True, slots=True)
class GroupIncident:
    """`entries`: the numbers of its ledger entries, none of a stall or move that moved nobody. Times are epoch
    milliseconds. `rebalances` does not count those that were overtaken (`superseded`) before they had a plan."""

    kind: str
    sentence: str
    entries: tuple[int, ...]
    from_ms: int
    to_ms: int
    certainty: str
    rebalances: int
    superseded: int
    moved: int
    unowned_partition_seconds: float
    unowned_at_least_partition_seconds: float


class IncidentDocument(TypedDict):
    """What programs read of an incident, as `GroupIncident` has it."""

    kind: str
    sentence: str
    entries: list[int]
    from_ms: int
    to_ms: int
    certainty: str
    rebalances: int
    superseded: int
    moved: int
    unowned_partition_seconds: float
    unowned_at_least_partition_seconds: float


KINDS: Final = {
    "start": "members joined an empty group",
    "stop": "all members left",
    "stop_and_start": "all members left, and members joined again",
    "restart": "members came back as new processes",
    "rolling_restart": "members were restarted one after the other",
    "crash_loop": "a member restarts again and again",
    "members_changed": "members joined or left",
    "storm": "many rebalances without a common cause",
    "topic_change": "topics, partitions or subscriptions changed",
    "assignor_rollout": "members offer other assignors, or other metadata",
    "operator": "an operator changed something, and what followed",
    "instance_id_shared": "two processes use one group.instance.id",
    "node_stall": "the node stood still, and what followed",
    "failover": "another node became the coordinator, and what followed",
    "rebalance": "a rebalance by itself",
}
"""Every kind of incident."""


def find_incidents(
    entries: Iterable[Rebalance],
    names: Names,
    stalls: Iterable[NodeStall] = (),
    moves: Iterable[CoordinatorMove] = (),
) -> list[GroupIncident]:
    """Oldest first. `names` are for sentences of single entries; an incident calls a member by its identity."""
    found, members = group_entries(entries, stalls, moves)
    called = name_identities(members.identities.values(), names)
    return [tell_incident(each, names, called) for each in found]


def latest_incidents(found: Sequence[GroupIncident], entries: Sequence[Rebalance], limit: int) -> list[GroupIncident]:
    """Those of the last `limit` entries, whole, and what the node did meanwhile. `entries`: oldest first."""
    shown = {entry.number for entry in entries[-limit:]}
    since_ms = min((entry.started_at_ms for entry in entries[-limit:]), default=0) if len(entries) > limit else 0
    return [each for each in found if shown & {*each.entries} or (not each.entries and each.to_ms >= since_ms)]


def incident_document(incident: GroupIncident) -> IncidentDocument:
    return {
        "kind": incident.kind,
        "sentence": incident.sentence,
        "entries": list(incident.entries),
        "from_ms": incident.from_ms,
        "to_ms": incident.to_ms,
        "certainty": incident.certainty,
        "rebalances": incident.rebalances,
        "superseded": incident.superseded,
        "moved": incident.moved,
        "unowned_partition_seconds": incident.unowned_partition_seconds,
        "unowned_at_least_partition_seconds": incident.unowned_at_least_partition_seconds,
    }


def explain_document(
    entries: Sequence[Rebalance],
    limit: int,
    stalls: Iterable[NodeStall] = (),
    moves: Iterable[CoordinatorMove] = (),
) -> dict[str, Any]:
    """What has happened to a group: `incidents`, and the last `limit` entries of its ledger as `rebalances`.

    `entries` are all that there are, oldest first.
    """
    found = find_incidents(entries, names_of(entries), stalls, moves)
    return {
        "incidents": [incident_document(each) for each in latest_incidents(found, entries, limit)],
        "rebalances": [entry_document(entry) for entry in entries[-limit:]],
    }


def name_identities(identities: Iterable[Identity], otherwise: Names) -> Callable[[Identity], str]:
    """`otherwise`: of a member of which the ledger tells nothing but its id."""
    keys = {who: " ".join(who) for who in {*identities}}
    names = Names({key: KnownMember(*who) for who, key in keys.items()})
    return lambda who: names[keys[who]] if who in keys else otherwise[who[0]]


def tell_incident(incident: OpenIncident, names: Names, called: Callable[[Identity], str]) -> GroupIncident:
    kind, text = TOLD[incident.about](incident, names, called)
    overtaken = sum(outcome_name(entry) == "SUPERSEDED" for entry in incident.entries)
    return GroupIncident(
        kind=kind,
        sentence=text,
        entries=tuple(entry.number for entry in incident.entries),
        from_ms=incident.began_ms,
        to_ms=incident.ended_ms,
        certainty=certainty_of(incident),
        rebalances=sum(map(is_rebalance, incident.entries)) - overtaken,
        superseded=overtaken,
        moved=sum(len(entry.moves) for entry in incident.entries),
        unowned_partition_seconds=round(sum(entry.unowned_partition_seconds for entry in incident.entries), 3),
        unowned_at_least_partition_seconds=round(sum(map(surely_unowned_seconds, incident.entries)), 3),
    )


def certainty_of(incident: OpenIncident) -> str:
    """That entries belong to a stall or a move of the coordinator is concluded from their time."""
    words = {certainty_word(entry) or "recorded" for entry in incident.entries}
    if words == {"unknown"}:
        return "unknown"
    by_time = incident.cause is not None and any(subject_of(entry) != NODE for entry in incident.entries)
    return "recorded" if words <= {"recorded"} and not by_time else "inferred"


Told: TypeAlias = tuple[str, str]
"""The kind and the sentence."""


def single(incident: OpenIncident, names: Names, kind: str = "rebalance") -> Told:
    """The sentence of the entry that ended it, or of the last."""
    ended = [entry for entry in incident.entries if outcome_name(entry) != "SUPERSEDED"] or incident.entries
    first = next((entry for entry in ended if cause_name(entry) not in FOLLOW_UPS), ended[0])
    return kind, sentence(first, names)


def tell_members(incident: OpenIncident, names: Names, called: Callable[[Identity], str]) -> Told:
    lasted = duration(incident.ended_ms - incident.began_ms)
    restarts, missing, new = Counter(incident.restarts), +incident.missing, +incident.new
    for often, times in restarts.most_common(1):
        if times >= LOOP_TIMES * max(1, incident.at_once[often]):
            others = len(incident.restarts) - times + missing.total() - missing[often] + new.total()
            also = f"; {plural(others, 'other change')} of members meanwhile" if others else ""
            gone = " It is not there now." if missing[often] else ""
            return "crash_loop", f"{called(often)} restarted {times} times in {lasted}{also}.{gone}"
    # Who restarted twice is one member still.
    each_once = Counter({who: min(times, max(1, incident.at_once[who])) for who, times in restarts.items()})
    if incident.emptied and not incident.storms:
        if incident.restarted_after_empty and incident.most_missing > 1:
            went, came = plural(incident.most_missing, "member"), len(incident.restarts) + new.total()
            return "stop_and_start", f"All {went} stopped, and {came} started again, within {lasted}."
        if missing:
            return "stop", f"All members are gone: {people(missing, called)} {ways(incident)}. Nobody is in the group."
    if incident.was_empty and not incident.restarts and not missing and new:
        return "start", f"The group started with {people(new, called)}."
    if restarts and (offer := offer_of(incident)):
        also = "" if not missing else f"; {people(missing, called)} {ways(incident)}"
        who, offered = people(each_once, called), names.in_text(offer)
        return (
            "assignor_rollout",
            f"Roll-out of other assignors: {who} restarted in {lasted} and offer {offered}{also}.",
        )
    if len(incident.restarts) > 1 and not missing and not new:
        if each_once.total() == 1:
            return "restart", f"{people(each_once, called)} restarted {len(incident.restarts)} times in {lasted}."
        who = people(each_once, called)
        if incident.most_missing == 1:
            return "rolling_restart", f"Rolling restart: {who} were restarted one after the other in {lasted}."
        return "restart", f"{who} were restarted in {lasted}."
    if len(incident.restarts) == 1 and not missing and not new:
        one = incident.restarts[0]
        came_back = STUCK if incident.how[one][STOPPED_POLLING] else "restarted"
        return "restart", f"{called(one)} {came_back}; it was away for {duration(incident.away_ms[0])}."
    stuck = Counter({each: count for each, count in each_once.items() if incident.how[each][STOPPED_POLLING]})
    told = [f"{people(each_once - stuck, called)} restarted"] if each_once - stuck else []
    told += [f"{people(stuck, called)} {STUCK}"] if stuck else []
    told += [f"{people(missing, called)} {ways(incident)}"] if missing else []
    told += [f"{people(new, called)} joined"] if new else []
    count = sum(map(is_rebalance, incident.entries))
    if incident.storms or (len(told) > 1 and count > STORM):
        who = f": {'; '.join(told)}" if told else ""
        return "storm", f"{count} rebalances in {lasted} without one cause{who}."
    if not told or (len(incident.entries) == 1 and len(told) == 1):
        return single(incident, names)
    return "members_changed", f"{'; '.join(told)}."


def offer_of(incident: OpenIncident) -> str:
    """What the last member that came back with other assignors offers, and how many do; empty if none did."""
    told = (entry.detail for entry in reversed(incident.entries) if cause_name(entry) in ARRIVALS)
    return next((detail.partition(OFFERS)[2] for detail in told if OFFERS in detail), "")


def people(who: Mapping[Identity, int], called: Callable[[Identity], str]) -> str:
    """
    >>> people({("a", "", ""): 1, ("b", "", ""): 3}, lambda who: who[0])
    '4 members (a and 3 of b)'
    """
    many = sum(who.values())
    names = listed(
        [called(each) if count == 1 else f"{count} of {called(each)}" for each, count in sorted(who.items())]
    )
    return f"{many} members ({names})" if many > 2 else names


def ways(incident: OpenIncident) -> str:
    """How those went who are not back, where the ledger says it."""
    known = Counter(word for who in +incident.missing for word in incident.how[who].elements() if word != "went")
    return " or ".join(word for word, _ in known.most_common(3)) or "went"


def tell_topics(incident: OpenIncident, names: Names, called: Callable[[Identity], str]) -> Told:
    told: list[TopicChange] = []
    for change in (each for entry in incident.entries for each in entry.topics):
        if change.kind == TOPIC_CHANGE_KIND_REMADE:  # its deletion is part of that
            told = [each for each in told if (each.topic, each.kind) != (change.topic, TOPIC_CHANGE_KIND_DELETED)]
        told.append(change)
    changes = list(dict.fromkeys(map(describe_topic_change, told)))
    if not changes:
        return single(incident, names, "topic_change")
    return "topic_change", f"{listed(changes)}{what_followed(incident.entries)}."


def what_followed(entries: Sequence[Rebalance]) -> str:
    rebalances = [entry for entry in entries if is_rebalance(entry)]
    moved = sum(len(entry.moves) for entry in rebalances)
    if not rebalances:
        return ""
    return f"; {plural(len(rebalances), 'rebalance')}, {plural(moved, 'partition')} moved"


def tell_assignors(incident: OpenIncident, names: Names, called: Callable[[Identity], str]) -> Told:
    last = incident.entries[-1]
    if cause_name(last) not in ("PROTOCOLS_CHANGED", "PROTOCOL_CHANGED") or not last.detail:
        return single(incident, names, "assignor_rollout")
    return "assignor_rollout", capitalize_sentence(f"{names.in_text(last.detail)}.", names[last.culprit])


def tell_operator(incident: OpenIncident, names: Names, called: Callable[[Identity], str]) -> Told:
    _, first = single(incident, names)
    acts = [entry for entry in incident.entries if not is_rebalance(entry)]
    if not acts:
        return "operator", first
    return "operator", f"{first.rstrip('.')}{what_followed(incident.entries)}."


def tell_shared(incident: OpenIncident, names: Names, called: Callable[[Identity], str]) -> Told:
    last = incident.entries[-1]
    if len(incident.entries) == 1 or not last.detail:
        return single(incident, names, "instance_id_shared")
    return "instance_id_shared", f"{names.in_text(last.detail)} ({len(incident.entries)} times)."


def tell_node(incident: OpenIncident, names: Names, called: Callable[[Identity], str]) -> Told:
    cause, entries = incident.cause, incident.entries
    followed = what_followed(entries)
    if isinstance(cause, NodeStall):
        kept = followed or "; nobody was expired for it"
        return "node_stall", f"The node stood still for {cause.stalled_ms / 1000:.1f} s{kept}."
    if isinstance(cause, CoordinatorMove):
        before = f"node {cause.from_node}" if cause.from_node >= 0 else "another node"
        silent = duration(cause.serving_ms - (cause.last_heard_ms or cause.elected_ms))
        lost = f"; {plural(cause.cut, 'record')} lost" if cause.cut else ""
        why = f" ({cause.cause})" if cause.cause else ""
        text = f"The coordinator moved from {before} to node {cause.to_node}{why}: {silent} without answers"
        return "failover", f"{text}, {plural(cause.members, 'member')} kept{lost}{followed}."
    return single(incident, names, "node_stall" if cause_name(entries[0]) == "NODE_STALLED" else "failover")


def tell_other(incident: OpenIncident, names: Names, called: Callable[[Identity], str]) -> Told:
    return single(incident, names)


TOLD: Final[Mapping[str, Callable[..., Any]]] = {
    MEMBERS: tell_members,
    TOPICS: tell_topics,
    ASSIGNORS: tell_assignors,
    OPERATOR: tell_operator,
    SHARED: tell_shared,
    NODE: tell_node,
    OTHER: tell_other,
}
