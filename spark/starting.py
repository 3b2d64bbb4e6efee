"""Where reading begins and ends, as options say it: words, offsets by partition, times. Pure."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

LATEST, EARLIEST = -1, -2

PartitionNumbers = Mapping[str, Mapping[int, int]]


class StartError(ValueError):
    """A starting or ending position that cannot be understood; the message names the option."""


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """One way to say it, and by which option. `offsets` may hold LATEST and EARLIEST.

    `strategy` is for where no record is so young.
    """

    kind: Literal["earliest", "latest", "committed", "offsets", "time", "times"]
    option: str = "startingOffsets"
    offsets: PartitionNumbers = field(default_factory=dict)
    times: PartitionNumbers = field(default_factory=dict)
    time_ms: int = -1
    strategy: str = "error"

    def among(self, partitions: Collection[tuple[str, int]]) -> "ReadPosition":
        """The same for some of the partitions alone.

        >>> ReadPosition("offsets", offsets={"t": {0: 5, 1: 7}}).among([("t", 1)]).offsets
        {'t': {1: 7}}
        """
        return replace(self, offsets=restrict_to(self.offsets, partitions), times=restrict_to(self.times, partitions))

    def names(self, partition: tuple[str, int]) -> bool:
        """Whether it says something of this partition itself.

        >>> ReadPosition("offsets", offsets={"t": {0: 5}}).names(("t", 1))
        False
        """
        topic, number = partition
        return number in self.offsets.get(topic, ()) or number in self.times.get(topic, ())


def restrict_to(numbers: PartitionNumbers, partitions: Collection[tuple[str, int]]) -> PartitionNumbers:
    rows = {
        topic: {number: value for number, value in row.items() if (topic, number) in partitions}
        for topic, row in numbers.items()
    }
    return {topic: row for topic, row in rows.items() if row}


def parse_offsets(name: str, text: str, words: Sequence[str], group_id: str | None) -> ReadPosition:
    """A word of `words`, or JSON {topic: {partition: offset}}."""
    word = text.strip().lower()
    if word in words:
        if word == "committed" and group_id is None:
            raise StartError(f"{name}=committed needs a group.id: the group whose offsets are meant")
        return ReadPosition(word, name)  # type: ignore[arg-type]  # the words are kinds
    choices = f"{', '.join(words)} or JSON such as " + '{"orders": {"0": 23, "1": -1}}'
    lowest = LATEST if "earliest" not in words else EARLIEST
    return ReadPosition("offsets", name, offsets=_numbers(name, text, choices, lowest))


def parse_times(name: str, text: str) -> PartitionNumbers:
    """JSON {topic: {partition: epoch milliseconds}}."""
    return _numbers(name, text, 'JSON such as {"orders": {"0": 1700000000000}}', 0)


def _numbers(name: str, text: str, choices: str, lowest: int) -> PartitionNumbers:
    try:
        read: Any = json.loads(text)
    except ValueError:
        raise StartError(f"{name}={text!r} is not understood; expected {choices}") from None
    if not isinstance(read, dict) or not read:
        raise StartError(f"{name}={text!r} names no partitions; expected {choices}")
    return {topic: _row(name, topic, row, choices, lowest) for topic, row in sorted(read.items())}


def _row(name: str, topic: str, row: Any, choices: str, lowest: int) -> dict[int, int]:
    if not isinstance(row, dict):
        raise StartError(f"{name}: topic {topic!r} has {row!r}; expected {choices}")
    numbers: dict[int, int] = {}
    for partition, value in row.items():
        if not partition.isdecimal():
            raise StartError(f"{name}: {topic!r} has partition {partition!r}; expected a number from 0 on")
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise StartError(f"{name}: {topic}-{partition} has {value!r}; expected a whole number, at least {lowest}")
        numbers[int(partition)] = value
    return numbers


def parse_assign(value: Any) -> dict[str, list[int]]:
    """JSON {topic: [partition]}; ValueError without the name of the option."""
    read: Any = read_json(value, '{"orders": [0, 1]}')
    if not isinstance(read, dict) or not read:
        raise ValueError('must be JSON that names topics with their partitions, as in {"orders": [0, 1]}')
    for topic, numbers in read.items():
        if not isinstance(numbers, list) or not numbers or not all(is_partition(number) for number in numbers):
            raise ValueError(f"topic {topic!r} needs partition numbers from 0 on, in a list, got {numbers!r}")
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"topic {topic!r} has a partition twice in {numbers}; name each once")
    return read


def read_json(value: Any, example: str) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"must be JSON, as in {example}") from None


def is_partition(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
