"""Leaves hidden topics out of what names topics: sentences, ledger entries, snapshots, and the blobs of members.

Ledger entries and snapshots lose those topics and say how many. What members and operators wrote themselves goes, too:
it may name them. Pure; whether a topic may be seen is given.
"""

import json
import re
from collections.abc import Callable, Container, Iterable
from typing import Any, Final

from muster.assignors.data.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    parse_subscription,
)

TOPIC: Final = "a topic you may not describe"
WORD: Final = re.compile(r"[A-Za-z0-9._-]+")
PARTITION: Final = re.compile(r"-\d+$")
ENDS: Final = ".,-_"
BY_TOPIC: Final = ("topics", "lags", "racks", "stale")

MaySee = Callable[[str], bool]


def find_hidden(names: Iterable[str], may_see: MaySee) -> set[str]:
    return {name for name in set(names) if not may_see(name)}


def count_words(hidden: int) -> str:
    """
    >>> count_words(1), count_words(2)
    ('1 topic you may not describe', '2 topics you may not describe')
    """
    return f"{hidden} topic{'s' if hidden > 1 else ''} you may not describe"


# Sentences
# ---------


def redact_text(text: str, hidden: Container[str], may_see: MaySee, catalog: Container[str]) -> str:
    """A sentence without the names of topics that are hidden, or known and not to be seen.

    >>> redact_text("pay-3 fell behind, not orders-1.", (), lambda name: name != "pay", {"pay", "orders"})
    'a topic you may not describe-3 fell behind, not orders-1.'
    """

    def plain(found: re.Match[str]) -> str:
        word = found.group()
        bare = word.strip(ENDS)
        for name in (word, bare, PARTITION.sub("", bare)):
            if name and (name in hidden or (name in catalog and not may_see(name))):
                return word.replace(name, TOPIC)
        return word

    return WORD.sub(plain, text) if text else text


# Ledger entries and snapshots
# ----------------------------


def redact_entry(entry: Any, may_see: MaySee) -> set[str]:
    """Of one rebalance (`Rebalance`), in place, but for its sentences. Returns the topics that were left out."""
    snapshot = json.loads(entry.snapshot_json) if entry.snapshot_json else None
    hidden = find_hidden(topics_of_entry(entry, snapshot), may_see)
    for member in entry.members:
        drop_hidden_rows(member.assigned, hidden)
    for rows in (entry.moves, entry.positions, entry.topics, entry.late_fetches):
        drop_hidden_rows(rows, hidden)
    if snapshot is not None and hidden:
        entry.snapshot_json = json.dumps(redact_snapshot(snapshot, hidden), separators=(",", ":"))
    return hidden


def topics_of_entry(entry: Any, snapshot: Any) -> Iterable[str]:
    for member in entry.members:
        yield from (each.topic for each in member.assigned)
    for rows in (entry.moves, entry.positions, entry.topics, entry.late_fetches):
        yield from (each.topic for each in rows)
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
    made["members"] = [redact_snapshot_member(member, hidden) for member in snapshot.get("members", ())]
    return made


def redact_snapshot_member(member: dict[str, Any], hidden: Container[str]) -> dict[str, Any]:
    made = {name: value for name, value in member.items() if name != "user_data"}
    made["topics"] = [topic for topic in member.get("topics", ()) if topic not in hidden]
    if member.get("owned"):
        made["owned"] = {topic: value for topic, value in member["owned"].items() if topic not in hidden}
    return made


def drop_hidden_rows(rows: Any, hidden: Container[str]) -> None:
    """Leave out, in place, the rows of those topics."""
    keep_rows(rows, lambda row: row.topic not in hidden)


def keep_rows(rows: Any, wanted: Callable[[Any], bool]) -> None:
    """Keep, in place, the rows of an answer that are wanted."""
    if all(map(wanted, rows)):
        return
    left = [type(row).FromString(row.SerializeToString()) for row in rows if wanted(row)]
    del rows[:]
    rows.extend(left)


# Blobs of ConsumerProtocol
# -------------------------


def topics_of_blobs(metadata: bytes, assignment: bytes) -> set[str]:
    """The topics that a member of a consumer group subscribes to, or has. Raises ValueError for other bytes."""
    said = parse_subscription(metadata) if metadata else Subscription(0, ())
    return {*said.topics, *said.owned, *parse_assignment(assignment).partitions}


def redact_metadata(blob: bytes, hidden: Container[str]) -> bytes:
    """A subscription without those topics, and without user data, which may name them."""
    if not blob:
        return blob
    said = parse_subscription(blob)
    topics = tuple(topic for topic in said.topics if topic not in hidden)
    owned = {topic: numbers for topic, numbers in said.owned.items() if topic not in hidden}
    return encode_subscription(Subscription(min(said.version, 3), topics, None, owned, said.generation, said.rack))


def redact_assignment(blob: bytes, hidden: Container[str]) -> bytes:
    """A share without those topics, and without user data, which may name them."""
    if not blob:
        return blob
    said = parse_assignment(blob)
    owned = {topic: numbers for topic, numbers in said.partitions.items() if topic not in hidden}
    return encode_assignment(owned, None, min(said.version, 3))


CONSUMER: Final = "consumer"


def redact_member_blobs(
    protocol_type: str, metadata: bytes, assignment: bytes, may_see: MaySee
) -> tuple[bytes, bytes, set[str]]:
    """What a member of any kind of group said and has, without hidden topics; and those topics.

    Consumers' bytes that cannot be read go: what they name is not known. Groups of other protocol types, such as
    Connect's workers, exchange something else.
    """
    try:
        hidden = find_hidden(topics_of_blobs(metadata, assignment), may_see)
        if not hidden:
            return metadata, assignment, hidden
        return redact_metadata(metadata, hidden), redact_assignment(assignment, hidden), hidden
    except ValueError:
        return (b"", b"", set()) if protocol_type == CONSUMER else (metadata, assignment, set())
