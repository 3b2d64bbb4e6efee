"""`muster groups list --kafka` and `--segments` print groups as soon as their records have been read."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from muster.cli.common import watching
from muster.cli.common.commands import Unhealthy
from muster.cli.common.output import GrowingTable
from muster.cli.common.watching import LOADING, ReadingPace
from muster.cli.groups import description
from muster.client.described import GroupListing
from muster.coordinator.core.watched.watched_shard import NOT_READ
from muster.coordinator.server.watch_backend.watch_backend import LOOKING


def listing(group_id: str) -> GroupListing:
    return GroupListing(group_id, "Stable", "consumer", "classic")


class ReadingNode:
    """Its shards have been read one more at each question. rounds: the groups that it knows then, and what is said of
    the others; "": it has read all."""

    def __init__(self, rounds: list[tuple[list[str], str]]) -> None:
        self.rounds = rounds

    def list_groups(self, states: object, missing: Callable[[str], None]) -> list[GroupListing]:
        groups, untold = self.rounds.pop(0)
        if untold:
            missing(f"some of 127.0.0.1:1: {untold}")
        return [listing(each) for each in groups]

    def conditions(self) -> list[Any]:
        return []


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setattr(watching, "PAUSE_S", 0.0)

    def run(rounds: list[tuple[list[str], str]], *arguments: str) -> str:
        @contextmanager
        def given(*_: object) -> Iterator[Any]:
            yield ReadingNode(rounds)

        monkeypatch.setattr(watching, "watching_node", given)
        monkeypatch.setattr(description, "connect_admin", given)
        done = CliRunner().invoke(description.list_, ["--segments", "x", *arguments], catch_exceptions=False)
        return done.stdout

    return run


ROUNDS = [([], LOADING + "1 of 3 MiB"), (["a"], LOADING + "2 of 3 MiB"), (["a", "bb"], ""), ([], "never asked")]


def test_each_group_is_printed_once(listed: Callable[..., str]) -> None:
    rounds = list(ROUNDS)
    assert [line.split() for line in listed(rounds).splitlines()] == [
        ["GROUP", "TYPE", "STATE", "HEALTH"],
        ["a", "classic", "Stable", "-"],
        ["bb", "classic", "Stable", "-"],
    ]
    assert len(rounds) == 1


def test_a_document_is_printed_once_all_is_known(listed: Callable[..., str]) -> None:
    assert [row["group"] for row in json.loads(listed(list(ROUNDS), "-o", "json"))] == ["a", "bb"]


def test_another_trouble_ends_it(listed: Callable[..., str]) -> None:
    rounds = [(["a"], LOADING + "1 of 3 MiB"), (["a"], "CORRUPT_MESSAGE: a shard cannot be read"), ([], "never asked")]
    with pytest.raises(Unhealthy, match="a shard cannot be read"):
        listed(rounds)
    assert len(rounds) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "the segments cannot be read: [Errno 5] Input/output error",
        "__consumer_offsets-3 cannot be read: broker 1 cannot be reached: it is away",
        "watch.poll.ms is 0, so nothing is looked at",
    ],
)
def test_what_goes_on_failing_is_told(sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PATIENCE_S", -1.0)
    pace = ReadingPace()
    pace.pause(LOADING + "the segments are being read: 1 of 3 MiB")
    pace.pause(LOADING + sentence)
    with pytest.raises(Unhealthy, match=re.escape(sentence)):
        pace.pause(LOADING + sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        NOT_READ,
        "__consumer_offsets-3 has not been read yet",
        "__consumer_offsets-3 is being read: 1 of 3 MiB",
        "the segments are being read: 1 of 3 MiB",
        LOOKING,
    ],
)
def test_reading_may_take_as_long_as_it_does(sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PATIENCE_S", -1.0)
    monkeypatch.setattr(watching, "PAUSE_S", 0.0)
    pace = ReadingPace()
    for _ in range(3):
        pace.pause(LOADING + sentence)


def test_later_rows_keep_the_columns_of_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    table = GrowingTable([description.GROUP_COLUMNS[0], description.GROUP_COLUMNS[2]], "table")
    table.add([{"group": "first", "state": "Stable"}])
    table.add([{"group": "a", "state": "Empty"}, {"group": "much longer", "state": None}])
    assert capsys.readouterr().out == "GROUP  STATE\nfirst  Stable\na      Empty\nmuch longer  -\n"
