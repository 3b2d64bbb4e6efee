"""Ledger entries and snapshots for a reader who may not know of all topics: without those, told how many."""

import json
import re
from collections.abc import Callable, Container, Iterable
from typing import Any, Final

TOPIC: Final = "a topic you may not describe"
WORD: Final = re.compile(r"[A-Za-z0-9._-]+")
ENDS: Final = ".,-_"
BY_TOPIC: Final = ("topics", "lags", "racks", "stale")

MaySee = Callable[[str], bool]


def find_hidden(names: Iterable[str], may_see: MaySee) -> set[str]:
    return {name for name in set(names) if not may_see(name)}


def redact_entry(entry: Any, may_see: MaySee, catalog: Container[str]) -> None:
    """Of one rebalance (`Rebalance`), in place."""
    snapshot = json.loads(entry.snapshot_json) if entry.snapshot_json else None
    hidden = find_hidden(topics_of_entry(entry, snapshot), may_see)
    for member in entry.members:
        drop_hidden_rows(member.assigned, hidden)
    drop_hidden_rows(entry.moves, hidden)
    drop_hidden_rows(entry.positions, hidden)
    if snapshot is not None and hidden:
        entry.snapshot_json = json.dumps(redact_snapshot(snapshot, hidden), separators=(",", ":"))

    def plain(text: str) -> str:
        return redact_text(text, hidden, may_see, catalog)

    entry.detail, entry.client_reason = plain(entry.detail), plain(entry.client_reason)
    for texts in (entry.also, *(phase.waited_for for phase in entry.phases)):
        texts[:] = [plain(text) for text in texts]
    for move in entry.moves:
        move.why = plain(move.why)
    if hidden:
        many = f"{len(hidden)} topic{'s' if len(hidden) > 1 else ''} you may not describe"
        entry.detail = f"{entry.detail} ({many} left out)" if entry.detail else f"{many} left out"


def topics_of_entry(entry: Any, snapshot: Any) -> Iterable[str]:
    for member in entry.members:
        yield from (each.topic for each in member.assigned)
    yield from (each.topic for each in entry.moves)
    yield from (each.topic for each in entry.positions)
    if snapshot is not None:
        yield from topics_of_snapshot(snapshot)


def topics_of_snapshot(snapshot: Any) -> Iterable[str]:
    """The topics that a snapshot (as JSON has it) names."""
    for field in BY_TOPIC:
        yield from snapshot.get(field) or ()
    for member in snapshot.get("members", ()):
        yield from member.get("topics", ())
        yield from member.get("owned") or ()


def redact_snapshot(snapshot: dict[str, Any], hidden: Container[str]) -> dict[str, Any]:
    """Without those topics; what members and operators wrote themselves goes, for it may name them."""
    made = {name: value for name, value in snapshot.items() if name != "options"}
    for field in BY_TOPIC:
        if made.get(field):
            made[field] = {topic: value for topic, value in made[field].items() if topic not in hidden}
    made["members"] = [redact_member(member, hidden) for member in snapshot.get("members", ())]
    return made


def redact_member(member: dict[str, Any], hidden: Container[str]) -> dict[str, Any]:
    made = {name: value for name, value in member.items() if name != "user_data"}
    made["topics"] = [topic for topic in member.get("topics", ()) if topic not in hidden]
    if member.get("owned"):
        made["owned"] = {topic: value for topic, value in member["owned"].items() if topic not in hidden}
    return made


def drop_hidden_rows(rows: Any, hidden: Container[str]) -> None:
    """Leave out, in place, the rows of those topics."""
    if any(row.topic in hidden for row in rows):
        left = [type(row).FromString(row.SerializeToString()) for row in rows if row.topic not in hidden]
        del rows[:]
        rows.extend(left)


def redact_text(text: str, hidden: Container[str], may_see: MaySee, catalog: Container[str]) -> str:
    """A sentence without the names of topics that are hidden, or known and not to be seen."""

    def plain(found: re.Match[str]) -> str:
        word = found.group()
        for name in (word, word.strip(ENDS)):
            if name and (name in hidden or (name in catalog and not may_see(name))):
                return word.replace(name, TOPIC)
        return word

    return WORD.sub(plain, text) if text else text
