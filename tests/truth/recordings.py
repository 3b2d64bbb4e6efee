"""Golden recordings: what a broker had on record of a group when a situation was over, and what had happened.

Each is the batches of the group's partition of `__consumer_offsets` that name the group, as the broker wrote them, and
beside them what the situation knows to be true. `python -m tests.truth --backend kafka-4.1-watched --record` makes
them; `test_recordings.py` reads them without a broker.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from muster.coordinator.core.model.records import TopicId
from muster.coordinator.watch.segment_files import batch_end, find_segments
from muster.coordinator.watch.watched_partition import WatchedPartition
from muster.storage.records.batch import BatchView, view_at
from tests.truth.expectation import Expectation, Fact, TopicFact
from tests.truth.judge import Observation, Verdict, judge
from tests.truth.reports import CollectedEntries, ToldByRecords

FOLDER = Path(__file__).parents[1] / "vectors" / "watched"


@dataclass(frozen=True, slots=True)
class Recording:
    """since_ms: entries that ended later are judged. topic_ids: names by id. session_ms: of KIP-848 groups. Both are to
    be had of the broker, and not of its records.
    """

    situation: str
    client: str
    broker: str
    group: str
    since_ms: int
    topic_ids: dict[TopicId, str]
    session_ms: int
    expected: Expectation
    observation: Observation
    batches: bytes

    @property
    def name(self) -> str:
        return f"{self.broker}/{self.situation}.{self.client}"


def judge_recording(recording: Recording, *, alone: bool = False) -> tuple[Verdict, ToldByRecords]:
    """alone: by the records alone, as if nobody had asked the broker for anything."""
    names, session_ms = ({}, None) if alone else (recording.topic_ids, recording.session_ms)
    read = read_batches(recording.batches, names, session_ms)
    told = ToldByRecords(recording.group, read.entries.get(recording.group, ()))
    entries, incidents = told.reported(recording.since_ms)
    return judge(entries, "", recording.expected, recording.observation, incidents), told


def read_batches(data: bytes, names: Mapping[TopicId, str], session_ms: int | None) -> CollectedEntries:
    sink = CollectedEntries()
    partition = WatchedPartition(sink, dict(names), session_ms)
    for batch in batches_of(data):
        partition.take_batches(batch.data)
    return sink


def batches_of(data: bytes) -> Iterator[BatchView]:
    view, at = memoryview(data), 0
    while (end := batch_end(view, at)) is not None and end <= len(view):
        yield view_at(view, at, at)
        at = end


def batches_about(group: str, places: Sequence[Path]) -> bytes:
    """Of brokers that keep the same partitions, from the one that has most."""
    fullest = b""
    for place in places:
        found = bytearray()
        for segment in find_segments((place,)):
            data = segment.path.read_bytes()
            for batch in batches_of(data):
                if any(names_group(record.key, group) for record in batch.records()):
                    found += bytes(batch.data)
        fullest = max(fullest, bytes(found), key=len)
    return fullest


def names_group(key: bytes | None, group: str) -> bool:
    """All keys of `__consumer_offsets` begin with a version and the group, each two bytes and a string."""
    if key is None or len(key) < 4:
        return False
    return bytes(key[4 : 4 + int.from_bytes(key[2:4], "big")]) == group.encode()


# Files
# -----


def save(recording: Recording, folder: Path = FOLDER) -> None:
    path = folder / f"{recording.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "situation": recording.situation,
        "client": recording.client,
        "broker": recording.broker,
        "group": recording.group,
        "since_ms": recording.since_ms,
        "topic_ids": {topic_id.hex(): name for topic_id, name in recording.topic_ids.items()},
        "session_ms": recording.session_ms,
        "expected": asdict(recording.expected),
        "observation": {
            "names": recording.observation.names,
            "ids": recording.observation.ids,
            "before": owners_document(recording.observation.before),
            "after": owners_document(recording.observation.after),
            "cooperative": recording.observation.cooperative,
        },
    }
    path.write_text(json.dumps(document, indent=1, sort_keys=True, default=sorted) + "\n")
    path.with_suffix(".log.gz").write_bytes(gzip.compress(recording.batches, mtime=0))


def load_all(folder: Path = FOLDER) -> Iterator[Recording]:
    for path in sorted(folder.glob("*/*.json")):
        found = json.loads(path.read_text())
        seen = found["observation"]
        yield Recording(
            found["situation"],
            found["client"],
            found["broker"],
            found["group"],
            found["since_ms"],
            {bytes.fromhex(topic_id): name for topic_id, name in found.get("topic_ids", {}).items()},
            found["session_ms"],
            expectation_of(found["expected"]),
            Observation(
                frozenset(seen["names"]),
                seen["ids"],
                owners_of(seen["before"]),
                owners_of(seen["after"]),
                seen["cooperative"],
            ),
            gzip.decompress(path.with_suffix(".log.gz").read_bytes()),
        )


def owners_document(owners: dict[tuple[str, int], str]) -> list[list[Any]]:
    return [[*place, who] for place, who in sorted(owners.items())]


def owners_of(document: list[list[Any]]) -> dict[tuple[str, int], str]:
    return {(topic, partition): who for topic, partition, who in document}


def expectation_of(document: dict[str, Any]) -> Expectation:
    facts = [fact_of(each) for each in document["facts"]]
    topics = [TopicFact(**each) for each in document["topics"]]
    or_topics = [TopicFact(**each) for each in document["or_topics"]]
    return Expectation(
        **{
            **document,
            "facts": tuple(facts),
            "topics": tuple(topics),
            "or_topics": tuple(or_topics),
            "waited": {who: frozenset(ends) for who, ends in document["waited"].items()},
            "late": frozenset(document["late"]),
            "phases": tuple(document["phases"]),
            "never": tuple(document["never"]),
        }
    )


def fact_of(document: dict[str, Any]) -> Fact:
    sets = {name: frozenset(document[name]) for name in ("causes", "vague", "others")}
    return Fact(**{**document, **sets, "says": tuple(document["says"])})
