"""Compares what Muster reports about a group with what happened. Pure: documents and an expectation in, a verdict out.

A verdict is one of:

- right: every cause, culprit, topic, wait and move is true, and everything that is required is reported;
- half: nothing is false, but something is missing;
- wrong: something is false, for example a healthy member is blamed;
- silent: something happened, and nothing is reported;
- unknown: Muster says that it does not know the cause.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.truth.expectation import GONE, WENT, Expectation, Fact

RIGHT, HALF, WRONG, SILENT, UNKNOWN = "right", "half", "wrong", "silent", "unknown"

PROMPT_SHARE = 0.5
"""A member that arrived in this first share of a phase did not prolong it."""
SHORT_PHASE_MS = 1_500
"""A phase this short is a heartbeat or two; any member may have arrived last."""
ARRIVAL_ERROR_MS = 700
ROUND_TRIP_PARTITION_S = 0.05
"""Some milliseconds for each of a few partitions: a member of an eager group that joins again without need, as
kafka-python does at its start, gives up what it has for the time of its own round trip."""

Document = Mapping[str, Any]
Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    word: str
    reasons: tuple[str, ...] = ()
    surely_wrong: bool = False


@dataclass(slots=True)
class Observation:
    """What the situation saw with its own eyes.

    names: client ids of its members.
    ids: client ids by member id, as the node described the group.
    before, after: the member, by client id, that read each partition.
    """

    names: frozenset[str]
    ids: dict[str, str]
    before: dict[Partition, str]
    after: dict[Partition, str]
    cooperative: bool = False


@dataclass(slots=True)
class Findings:
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    surely_wrong: bool = False
    """Something false is told as recorded or said."""


def judge(
    entries: Sequence[Document],
    text: str,
    expected: Expectation,
    observation: Observation,
    incidents: Sequence[Document] | None = None,
) -> Verdict:
    """Judge the ledger's entries, oldest first, the same entries as text, and their incidents.

    An empty text and incidents of None are not judged.
    """
    if not entries:
        required = any(fact.required for fact in expected.facts) and not expected.quiet
        return Verdict(SILENT, ("the ledger has no entry",)) if required else Verdict(RIGHT)
    findings = Findings()
    names = ClientIds(entries, observation)
    judge_causes(entries, expected, observation, names, findings)
    judge_topics(entries, expected, findings)
    judge_waits(entries, expected, names, findings)
    judge_phases(entries, expected, findings)
    if expected.moves:
        judge_moves(entries, observation, names, findings)
    judge_late_fetches(entries, expected, observation, names, findings)
    judge_sentences(entries, text, expected, names, findings)
    if incidents is not None and expected.incident not in ("", *(each["kind"] for each in incidents)):
        kinds = ", ".join(each["kind"] for each in incidents)
        findings.missing.append(f"no incident is a {expected.incident}; there is {kinds}")
    if findings.wrong:
        return Verdict(WRONG, tuple(findings.wrong + findings.missing), findings.surely_wrong)
    if findings.unknown:
        return Verdict(UNKNOWN, tuple(findings.unknown + findings.missing))
    return Verdict(HALF, tuple(findings.missing)) if findings.missing else Verdict(RIGHT)


class ClientIds:
    """Client ids by member id, from the ledger and from what the situation saw."""

    def __init__(self, entries: Sequence[Document], observation: Observation) -> None:
        self.by_member = dict(observation.ids)
        self.ours = observation.names
        for entry in entries:
            for member in entry.get("members", ()):
                self.by_member[member["member_id"]] = member["client_id"]
            for place in (entry, *entry.get("triggers", ())):
                if place.get("culprit") and place.get("culprit_client_id"):
                    self.by_member.setdefault(place["culprit"], place["culprit_client_id"])
            for phase in entry.get("phases", ()):
                for wait in waits_of(phase):
                    if wait.get("client_id"):
                        self.by_member.setdefault(wait["member"], wait["client_id"])

    def __getitem__(self, member_id: str) -> str | None:
        """None for anything that is no member of the situation, such as an operator."""
        if not member_id:
            return None
        found = self.by_member.get(member_id)
        if found is None:
            found = next((name for name in self.ours if member_id == name or member_id.startswith(f"{name}-")), None)
        return found if found in self.ours else None


# Causes
# ------


def judge_causes(
    entries: Sequence[Document],
    expected: Expectation,
    observation: Observation,
    names: ClientIds,
    findings: Findings,
) -> None:
    reported: set[Fact] = set()
    vague: dict[Fact, str] = {}
    for entry in entries:
        for cause, member, sentence, certainty in statements_of(entry, names):
            said = f"#{entry['number']} says {cause}{f' by {member}' if member else ''}"
            if fact := matching_fact(cause, member, entry, expected.facts, certainty):
                reported.add(fact)
            elif fact := vaguely_matching_fact(cause, member, expected.facts):
                vague[fact] = said
            elif cause == "UNSPECIFIED" or certainty == "UNKNOWN":
                findings.unknown.append(f"{said}: {sentence}")
            elif not (observation.cooperative and cause == "REVOCATION_FOLLOW_UP" and member):
                known = f" ({certainty.lower()})" if certainty else ""
                findings.wrong.append(f"{said}{known}: {sentence}, which did not happen")
                findings.surely_wrong |= certainty in ("RECORDED", "SAID")
    everything = " ".join(sentences_of(entries))
    for fact in expected.facts:
        if not fact.required:
            continue
        if fact in reported:
            if missing := [word for word in fact.says if word not in everything]:
                findings.missing.append(f"{words_of(fact)} is reported without {', '.join(missing)}")
        elif fact in vague:
            findings.missing.append(f"{vague[fact]}; it was {words_of(fact)}{'' if fact.who else ' by no member'}")
        else:
            findings.missing.append(f"{words_of(fact)} is not reported")


def statements_of(entry: Document, names: ClientIds) -> Iterator[tuple[str, str | None, str, str]]:
    """Cause, culprit's client id if it is a member, sentence and certainty: of the entry, then of its further
    triggers."""
    for place in (entry, *entry.get("triggers", ())):
        certainty = bare(place.get("certainty"))
        yield bare(place["cause"]), names[place.get("culprit", "")], place.get("detail", ""), certainty


def matching_fact(
    cause: str, member: str | None, entry: Document, facts: Iterable[Fact], certainty: str
) -> Fact | None:
    matching = [each for each in facts if each.is_of(member) and cause in each.causes]
    matching = [each for each in matching if each.unsure == (certainty == "UNKNOWN")]
    matching = [each for each in matching if not each.outcome or each.outcome == entry["outcome"]]
    return max(matching, key=lambda each: (bool(each.outcome), each.required), default=None)


def vaguely_matching_fact(cause: str, member: str | None, facts: Iterable[Fact]) -> Fact | None:
    """Also a fact that no member is behind, if a member is named that only noticed it."""
    return next(
        (
            each
            for each in facts
            if (cause in each.vague and (each.is_of(member) or each.who is None))
            or (cause in each.causes and each.who is None)
        ),
        None,
    )


def words_of(fact: Fact) -> str:
    return f"{' or '.join(sorted(fact.causes))}{f' by {fact.who}' if fact.who else ''}"


def bare(word: str | None) -> str:
    """A word of the contract without the name of its enum.

    >>> bare("WAIT_END_JOINED"), bare("poll timeout"), bare("TOPIC_CHANGE_KIND_MADE")
    ('JOINED', 'POLL_TIMEOUT', 'MADE')
    """
    found = (word or "").upper().replace(" ", "_")
    for prefix in ("REBALANCE_CAUSE_", "CERTAINTY_", "WAIT_END_", "TOPIC_CHANGE_KIND_"):
        found = found.removeprefix(prefix)
    return found


# Topics
# ------


def judge_topics(entries: Sequence[Document], expected: Expectation, findings: Findings) -> None:
    reported = {(each["topic"], bare(each["kind"])): each for entry in entries for each in entry.get("topics", ())}
    known = {(each.topic, each.kind): each for each in (*expected.topics, *expected.or_topics)}
    for (topic, kind), change in reported.items():
        fact = known.get((topic, kind))
        figures = (int(change.get("before", 0)), int(change.get("after", 0)))
        if fact is None:
            findings.wrong.append(f"reports {topic} {kind.lower()}, which did not happen")
        elif figures != (fact.before, fact.after):
            findings.wrong.append(f"reports {topic} {figures[0]} -> {figures[1]}; it was {fact.before} -> {fact.after}")
    alternative = expected.or_topics and all((each.topic, each.kind) in reported for each in expected.or_topics)
    for fact in expected.or_topics if alternative else expected.topics:
        if (fact.topic, fact.kind) not in reported:
            change = f"{fact.topic} {fact.kind.lower()}, {fact.before} -> {fact.after} partitions"
            findings.missing.append(f"does not report {change}")


# Waits and phases
# ----------------


def waits_of(phase: Document) -> list[dict[str, Any]]:
    """The waits of a phase: `member`, and `came` and `after_ms` where they are reported."""
    if phase.get("waits"):
        return [{**each, "member": each["member_id"], "came": bare(each["came"])} for each in phase["waits"]]
    waits = [dict(each) if isinstance(each, Mapping) else {"member": each} for each in phase.get("waited_for", ())]
    return [{**each, "came": bare(each["came"])} if each.get("came") else each for each in waits]


def judge_waits(entries: Sequence[Document], expected: Expectation, names: ClientIds, findings: Findings) -> None:
    went = {fact.who for fact in expected.facts if fact.causes & WENT}
    excused = expected.late | went | expected.waited.keys()
    named: dict[str, set[str]] = {}
    for entry in entries:
        arrivals = {each["member_id"]: arrivals_of(entry, each) for each in entry.get("members", ())}
        for phase in entry.get("phases", ()):
            for wait in waits_of(phase):
                member, came = names[wait["member"]], wait.get("came", "")
                if member is None:
                    continue
                named.setdefault(member, set()).add(came)
                if member not in excused:
                    arrival = arrivals.get(wait["member"], {}).get(phase["name"])
                    judge_blame(entry, phase, wait, member, arrival, findings)
    for member, ends in expected.waited.items():
        if member not in named:
            findings.missing.append(f"does not report that the others waited for {member}")
        elif not named[member] & ends:
            findings.missing.append(f"does not report how the wait for {member} ended")


def arrivals_of(entry: Document, member: Document) -> dict[str, int]:
    """When the member arrived, in ms from the beginning of each phase that records it."""
    found, begins_at = {}, int(entry["started_at_ms"])
    for phase in entry.get("phases", ()):
        recorded_in = {"join": "joined_at_ms", "settle": "synced_at_ms"}.get(phase["name"])
        if recorded_in and member.get(recorded_in):
            found[phase["name"]] = int(member[recorded_in]) - begins_at
        begins_at += int(phase["duration_ms"])
    return found


def judge_blame(
    entry: Document, phase: Document, wait: Document, member: str, arrival_ms: int | None, findings: Findings
) -> None:
    """A healthy member may be named only as it arrived: late, at the time that the ledger itself records."""
    took_ms = int(phase["duration_ms"])
    said = f"#{entry['number']}: {phase['name']} took {took_ms} ms and names {member}"
    if wait.get("came") in GONE:
        findings.wrong.append(f"{said} as {wait['came'].lower()}, but it was there")
    elif arrival_ms is None:
        return
    elif "came" not in wait and took_ms > SHORT_PHASE_MS and arrival_ms < took_ms * PROMPT_SHARE:
        findings.wrong.append(f"{said}, which arrived after {arrival_ms} ms")
    elif "after_ms" in wait and abs(int(wait["after_ms"]) - arrival_ms) > ARRIVAL_ERROR_MS:
        findings.wrong.append(f"{said} as {wait['after_ms']} ms late; it arrived after {arrival_ms} ms")


def judge_phases(entries: Sequence[Document], expected: Expectation, findings: Findings) -> None:
    reported = {phase["name"] for entry in entries for phase in entry.get("phases", ())}
    findings.missing.extend(f"no phase is called {name}" for name in expected.phases if name not in reported)
    unowned = sum(float(entry.get("unowned_partition_seconds", 0)) for entry in entries)
    if not expected.outage and unowned > ROUND_TRIP_PARTITION_S:
        findings.wrong.append(f"reports {unowned:.2f} unowned partition-seconds; no partition lost an owner")


# Moves and sentences
# -------------------


def judge_moves(entries: Sequence[Document], observation: Observation, names: ClientIds, findings: Findings) -> None:
    """The moves, one after the other, lead from the owners before to the owners now."""
    owners = dict(observation.before)
    for entry in entries:
        for move in entry.get("moves", ()):
            partition = (move["topic"], int(move["partition"]))
            target = names[move.get("target", "")]
            if target is None:
                owners.pop(partition, None)
            else:
                owners[partition] = target
    for partition in sorted(owners.keys() | observation.after.keys()):
        reported, real = owners.get(partition), observation.after.get(partition)
        if reported != real:
            findings.missing.append(f"moves end with {partition[0]}[{partition[1]}] at {reported}; its owner is {real}")


def judge_late_fetches(
    entries: Sequence[Document],
    expected: Expectation,
    observation: Observation,
    names: ClientIds,
    findings: Findings,
) -> None:
    """Only a member that went can have fetched what it no longer had, and only what it had."""
    went = {fact.who for fact in expected.facts} | {expected.reads_on}
    readers = set()
    for late in (each for entry in entries for each in entry.get("late_fetches", ())):
        reader = names[late["member_id"]]
        places = {(late["topic"], int(number)) for number in late["partitions"]}
        if reader not in went:
            findings.wrong.append(f"says that {reader} still fetched {late['topic']}, but it was there")
        elif expected.reads_on and any(observation.before.get(place) != reader for place in places):
            findings.wrong.append(f"says that {reader} still fetched what it never had: {sorted(places)}")
        readers.add(reader)
    if expected.reads_on and expected.reads_on not in readers:
        findings.missing.append(f"does not report that {expected.reads_on} still fetched what it had")


def sentences_of(entries: Sequence[Document]) -> Iterator[str]:
    for entry in entries:
        yield from (entry.get("detail", ""), entry.get("evidence", ""), entry.get("client_reason", ""))
        yield from entry.get("also", ())
        yield from (each.get("detail", "") for each in entry.get("triggers", ()))
        yield from (each.get("why", "") for each in entry.get("moves", ()))
        yield from (each["topic"] for each in entry.get("topics", ()))


def judge_sentences(
    entries: Sequence[Document], text: str, expected: Expectation, names: ClientIds, findings: Findings
) -> None:
    for word in expected.never:
        if sentence := next((each for each in sentences_of(entries) if word in each), None):
            findings.wrong.append(f"says {sentence!r}")
    if not text:
        return
    for fact in expected.facts:
        if fact.required and fact.who and not mentions(text, fact.who, *fact.others):
            findings.missing.append(f"the text does not name {fact.who}")
    for member_id, name in names.by_member.items():
        if name in names.ours and name not in member_id and member_id[:8] in text:
            findings.missing.append(f"the text calls {name} by its random id {member_id[:8]}")
            return


def mentions(text: str, *names: str) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", text) for name in names)
