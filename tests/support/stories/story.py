"""The text of a story: blocks of a command, `----` and a trace, and the words that commands are made of."""

from dataclasses import dataclass
from pathlib import Path

from muster.assignors.data.consumer_protocol import Subscription, encode_sticky_user_data, encode_subscription
from muster.coordinator.core.model.types import CommittedOffset, Protocol


@dataclass
class Block:
    """One command with the comment above it, its input lines, and the trace it should leave."""

    head: list[str]
    command: list[str]
    expected: list[str]


def read_story(path: Path) -> list[Block]:
    blocks = []
    for part in path.read_text(encoding="utf-8").strip("\n").split("\n\n"):
        lines = part.split("\n")
        head = [line for line in lines if line.startswith("#")]
        body = [line for line in lines if not line.startswith("#")]
        if not body:
            blocks.append(Block(head, [], []))
            continue
        assert "----" in body, f"{path.name}: block without ----: {body[0]}"
        cut = body.index("----")
        blocks.append(Block(head, body[:cut], body[cut + 1 :]))
    return blocks


def write_story(path: Path, blocks: list[Block], traces: list[list[str]]) -> None:
    parts = []
    for block, trace in zip(blocks, traces, strict=True):
        lines = [*block.head]
        if block.command:
            lines += [*block.command, "----", *trace]
        parts.append("\n".join(lines))
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def pairs(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


UNITS = {"ms": 1, "m": 60_000, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(word: str) -> int:
    number = word.rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(number) * UNITS[word[len(number) :]]


def repeated(word: str) -> str:
    """x*5 stands for xxxxx."""
    letter, star, times = word.partition("*")
    return letter * int(times) if star else word


def topic_partition(word: str) -> tuple[str, int]:
    topic, _, partition = word.rpartition("-")
    return topic, int(partition)


def read_commit(words: list[str]) -> tuple[dict[tuple[str, int], CommittedOffset], dict[str, str]]:
    """The positions (topic-partition=offset[:metadata]) and the options of a commit."""
    positions = [word for word in words if "-" in word.split("=")[0]]
    offsets = {}
    for word in positions:
        where, _, what = word.partition("=")
        offset, _, metadata = what.partition(":")
        offsets[topic_partition(where)] = CommittedOffset(int(offset), -1, repeated(metadata))
    return offsets, pairs([word for word in words if word not in positions])


def topic_map(words: list[str]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in map(topic_partition, words):
        topics.setdefault(topic, []).append(partition)
    return topics


def protocols_from(options: dict[str, str]) -> tuple[Protocol, ...]:
    """protocols=a,b topics=t,u owned=t-0,t-1, or blob=raw for metadata that nobody can read.

    had=t-0,t-1: what an eager `sticky` member says in its user data that it had.
    """
    names = [name for name in options.get("protocols", "range").split(",") if name]
    if "blob" in options:
        return tuple(Protocol(name, options["blob"].encode()) for name in names)
    topics = tuple(topic for topic in options.get("topics", "t").split(",") if topic)
    owned = topic_map([word for word in options.get("owned", "").split(",") if word])
    had = topic_map([word for word in options.get("had", "").split(",") if word])
    data = encode_sticky_user_data(had, 1) if had else None
    subscription = encode_subscription(Subscription(version=1, topics=topics, owned=owned, user_data=data))
    return tuple(Protocol(name, subscription) for name in names)
