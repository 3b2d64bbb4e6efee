"""Holds what is told against what happened. A pure function of the ledger's documents and the expectation.

A verdict is one of
- right: every cause, culprit, topic, wait and move is true, and all that is required is told;
- half: nothing is false, and something is missing;
- wrong: something is false: a healthy member is blamed, a cause that was none, a move that was not made;
- silent: nothing is told, and something happened;
- unknown: it says that it does not know.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.truth.expectation import EXPIRED_WORDS, Fact, Told

RIGHT, HALF, WRONG, SILENT, UNKNOWN = "right", "half", "wrong", "silent", "unknown"

AT_ONCE = 0.5
"""Who came in this first part of a phase did not make it long."""
LONG_MS = 1_500
"""Shorter phases are a heartbeat or two, and anyone may have been the last."""
ARRIVAL_ERROR_MS = 700

Document = Mapping[str, Any]
Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    word: str
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class Witness:
    """What the situation saw beside the ledger: its members' client ids, and who read what before and after.

    `ids`: member ids that were seen, with their client ids.
    """

    names: frozenset[str]
    ids: dict[str, str]
    before: dict[Partition, str]
    after: dict[Partition, str]
    alive: frozenset[str] = frozenset()
    cooperative: bool = False


@dataclass(slots=True)
class Findings:
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def judge(story: Sequence[Document], text: str, told: Told, witness: Witness) -> Verdict:
    """`story`: the entries that were written from the mark on, oldest first; `text`: all of it for people."""
    if not story:
        needed = any(fact.required for fact in told.facts)
        return Verdict(SILENT, ("the ledger has no entry",)) if needed and not told.quiet else Verdict(RIGHT)
    findings = Findings()
    names = Names(story, witness)
    judge_causes(story, told, witness, names, findings)
    judge_topics(story, told, findings)
    judge_waits(story, told, names, findings)
    judge_phases(story, told, findings)
    if told.moves:
        judge_moves(story, witness, names, findings)
    judge_words(story, text, told, names, findings)
    if findings.wrong:
        return Verdict(WRONG, tuple(findings.wrong + findings.missing))
    if findings.unknown:
        return Verdict(UNKNOWN, tuple(findings.unknown + findings.missing))
    return Verdict(HALF, tuple(findings.missing)) if findings.missing else Verdict(RIGHT)


class Names:
    """Client ids of member ids, from all that was seen of them."""

    def __init__(self, story: Sequence[Document], witness: Witness) -> None:
        self.ids = dict(witness.ids)
        self.known = witness.names
        for entry in story:
            for member in entry.get("members", ()):
                self.ids[member["member_id"]] = member["client_id"]
            for place in (entry, *entry.get("triggers", ())):
                if place.get("culprit") and place.get("culprit_client_id"):
                    self.ids.setdefault(place["culprit"], place["culprit_client_id"])
            for phase in entry.get("phases", ()):
                for wait in waits_of(phase):
                    if wait.get("client_id"):
                        self.ids.setdefault(wait["member"], wait["client_id"])

    def __getitem__(self, member_id: str) -> str | None:
        """None: none of ours, such as an operator, or nobody."""
        if not member_id:
            return None
        known = self.ids.get(member_id)
        if known is None:
            known = next((name for name in self.known if member_id == name or member_id.startswith(f"{name}-")), None)
        return known if known in self.known else None


# Causes
# ------


def judge_causes(story: Sequence[Document], told: Told, witness: Witness, names: Names, findings: Findings) -> None:
    told_facts: dict[Fact, list[str]] = {fact: [] for fact in told.facts}
    vague: dict[Fact, str] = {}
    for entry in story:
        for cause, who, sentence in statements(entry, names):
            said = f"#{entry['number']} says {cause}{f' by {who}' if who else ''}"
            if fact := fact_of(cause, who, entry, told.facts):
                told_facts[fact].append(sentence)
            elif fact := next((each for each in told.facts if each.is_of(who) and cause in each.vague), None):
                vague[fact] = said
            elif cause == "UNSPECIFIED" or bare(entry.get("certainty", "")) == "UNKNOWN":
                findings.unknown.append(f"{said}: {sentence}")
            elif not (witness.cooperative and cause == "REVOCATION_FOLLOW_UP" and who in witness.names):
                findings.wrong.append(f"{said} ({sentence}), which is not what happened")
    everything = " ".join(sentences(story))
    for fact, tellings in told_facts.items():
        if not fact.required:
            continue
        if tellings:
            missed = [word for word in fact.says if word not in everything]
            if missed:
                findings.missing.append(f"{words_of(fact)} is told without {', '.join(missed)}")
        elif fact in vague:
            findings.missing.append(f"{vague[fact]}, where it was {words_of(fact)}")
        else:
            findings.missing.append(f"{words_of(fact)} is not told")


def statements(entry: Document, names: Names) -> Iterator[tuple[str, str | None, str]]:
    """Cause, client id of the culprit if it is a member, and the sentence, of the entry and its further triggers."""
    yield bare(entry["cause"]), names[entry.get("culprit", "")], entry.get("detail", "")
    for trigger in entry.get("triggers", ()):
        yield (
            bare(trigger["cause"]),
            names[trigger.get("culprit", "")],
            trigger.get("detail", ""),
        )


def fact_of(cause: str, who: str | None, entry: Document, facts: Iterable[Fact]) -> Fact | None:
    fitting = [each for each in facts if each.is_of(who) and cause in each.causes]
    fitting = [each for each in fitting if not each.outcome or each.outcome == entry["outcome"]]
    return max(fitting, key=lambda each: (bool(each.outcome), each.required), default=None)


def words_of(fact: Fact) -> str:
    return f"{' or '.join(sorted(fact.causes))}{f' by {fact.who}' if fact.who else ''}"


# Topics, waits, phases, moves, words
# -----------------------------------


def judge_topics(story: Sequence[Document], told: Told, findings: Findings) -> None:
    said = [(each["topic"], bare(each["kind"]), each) for entry in story for each in entry.get("topics", ())]
    there = {(topic, kind) for topic, kind, _ in said}
    known = {(each.topic, each.kind): each for each in (*told.topics, *told.or_topics)}
    or_told = told.or_topics and all((each.topic, each.kind) in there for each in told.or_topics)
    wanted = told.or_topics if or_told else told.topics
    for topic, kind, each in said:
        fact = known.get((topic, kind))
        if fact is None:
            findings.wrong.append(f"says that {topic} {kind.lower()}, which it did not")
        elif (int(each.get("before", 0)), int(each.get("after", 0))) != (fact.before, fact.after):
            findings.wrong.append(
                f"says {topic} {each.get('before')} -> {each.get('after')}: {fact.before} -> {fact.after}"
            )
    for fact in wanted:
        if (fact.topic, fact.kind) not in there:
            findings.missing.append(
                f"not told: {fact.topic} {fact.kind.lower()}, {fact.before} -> {fact.after} partitions"
            )


def waits_of(phase: Document) -> list[Document]:
    """Each with `member`, and `came` and `after_ms` where those are told."""
    if phase.get("waits"):
        return [{**each, "member": each["member_id"], "came": bare(each["came"])} for each in phase["waits"]]
    told = [each if isinstance(each, Mapping) else {"member": each} for each in phase.get("waited_for", ())]
    return [{**each, "came": bare(each["came"])} if "came" in each else each for each in told]


def bare(word: str) -> str:
    """A word of the contract without the name of its enum.

    >>> bare("WAIT_END_JOINED"), bare("poll timeout"), bare("TOPIC_CHANGE_KIND_MADE")
    ('JOINED', 'POLL_TIMEOUT', 'MADE')
    """
    found = word.upper().replace(" ", "_")
    for prefix in ("REBALANCE_CAUSE_", "CERTAINTY_", "WAIT_END_", "TOPIC_CHANGE_KIND_"):
        found = found.removeprefix(prefix)
    return found


def judge_waits(story: Sequence[Document], told: Told, names: Names, findings: Findings) -> None:
    named: dict[str, set[str]] = {}
    for entry in story:
        arrivals = {each["member_id"]: arrival_of(entry, each) for each in entry.get("members", ())}
        for phase in entry.get("phases", ()):
            for wait in waits_of(phase):
                who = names[wait["member"]]
                if who is None:
                    continue
                came = wait.get("came", "")
                named.setdefault(who, set()).add(came)
                if who in told.waited:
                    if came and came not in told.waited[who] and who not in told.late:
                        findings.wrong.append(
                            f"#{entry['number']}: {who} {came.lower()} in {phase['name']}; it did not"
                        )
                elif who not in told.late:
                    blame(entry, phase, wait, who, arrivals.get(wait["member"], {}).get(phase["name"]), findings)
    for who, came in told.waited.items():
        if who not in named:
            findings.missing.append(f"{who}, for whom the others waited, is not named as waited for")
        elif not named[who] & came:
            findings.missing.append(f"{who} is named as waited for, but not how it came")


def arrival_of(entry: Document, member: Document) -> dict[str, int]:
    """When the member had come in each phase, in ms from the phase's beginning."""
    found, at = {}, int(entry["started_at_ms"])
    for phase in entry.get("phases", ()):
        field_name = {"join": "joined_at_ms", "settle": "synced_at_ms"}.get(phase["name"])
        if field_name and member.get(field_name):
            found[phase["name"]] = int(member[field_name]) - at
        at += int(phase["duration_ms"])
    return found


def blame(
    entry: Document, phase: Document, wait: Document, who: str, arrival_ms: int | None, findings: Findings
) -> None:
    """Of a member that did nothing wrong: that it was waited for is true only if it came last and late."""
    took_ms = int(phase["duration_ms"])
    said = f"#{entry['number']}: {phase['name']} took {took_ms} ms and names {who}"
    if wait.get("came") in EXPIRED_WORDS:
        findings.wrong.append(f"{said} as {wait['came']}, who was there")
    elif took_ms > LONG_MS and arrival_ms is not None and arrival_ms < took_ms * AT_ONCE and "came" not in wait:
        findings.wrong.append(f"{said}, who had come after {arrival_ms} ms")
    elif "after_ms" in wait and arrival_ms is not None and abs(int(wait["after_ms"]) - arrival_ms) > ARRIVAL_ERROR_MS:
        findings.wrong.append(f"{said} as late by {wait['after_ms']} ms, who had come after {arrival_ms} ms")


def judge_phases(story: Sequence[Document], told: Told, findings: Findings) -> None:
    there = {phase["name"] for entry in story for phase in entry.get("phases", ())}
    findings.missing.extend(f"no phase is called {name}" for name in told.phases if name not in there)
    unowned = sum(float(entry.get("unowned_partition_seconds", 0)) for entry in story)
    if not told.outage and unowned > 0:
        findings.wrong.append(f"{unowned:.2f} partition-seconds unowned, though nobody missed a partition")


def judge_moves(story: Sequence[Document], witness: Witness, names: Names, findings: Findings) -> None:
    """The moves, one after the other, lead from who read what before to who reads it now."""
    owners = dict(witness.before)
    for entry in story:
        for move in entry.get("moves", ()):
            place = (move["topic"], int(move["partition"]))
            target = names[move.get("target", "")]
            if target is None:
                owners.pop(place, None)
            else:
                owners[place] = target
    for place in sorted(owners.keys() | witness.after.keys()):
        told_owner, owner = owners.get(place), witness.after.get(place)
        if told_owner != owner:
            findings.missing.append(
                f"{place[0]}[{place[1]}] is told to be {told_owner or 'nobody'}'s, and is {owner or 'nobody'}'s"
            )


def sentences(story: Sequence[Document]) -> Iterator[str]:
    for entry in story:
        yield from (entry.get("detail", ""), entry.get("evidence", ""), entry.get("client_reason", ""))
        yield from entry.get("also", ())
        yield from (each.get("detail", "") for each in entry.get("triggers", ()))
        yield from (each.get("why", "") for each in entry.get("moves", ()))


def judge_words(story: Sequence[Document], text: str, told: Told, names: Names, findings: Findings) -> None:
    for word in told.never:
        if said := next((each for each in sentences(story) if word in each), None):
            findings.wrong.append(f"says {said!r}")
    for fact in told.facts:
        if text and fact.required and fact.who and not is_named(fact, text):
            findings.missing.append(f"the text does not name {fact.who}")
    for member_id, name in names.ids.items():
        if name in names.known and name not in member_id and member_id[:8] in text:
            findings.missing.append(f"the text names {name} by its random id {member_id[:8]}")
            break


def is_named(fact: Fact, text: str) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", text) for name in (fact.who, *fact.others) if name)
