"""Shards that break one rule of transactions each: a story catches every one of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from muster.coordinator.core.groups.state import PendingPositions, Step
from muster.coordinator.core.requests import committed_offsets
from tests.support.stories.script import Stage
from tests.support.stories.story import read_story

STORIES = sorted((Path(__file__).parents[2] / "scripts" / "transactions").glob("*.txt"))


def told(path: Path) -> bool:
    """Whether the story goes as it is written."""
    stage = Stage()
    try:
        return all(stage.run(block.command) == block.expected for block in read_story(path) if block.command)
    except AssertionError:
        return False


def plain_is_not_later(honest: Any) -> Any:
    return lambda self, record: None


def later_transaction_is_not_later(honest: Any) -> Any:
    def overtaken(self: PendingPositions, group_id: str, places: Any) -> None:
        if not isinstance(places, dict):
            honest(self, group_id, places)

    return overtaken


def earlier_transaction_takes_the_later_along(honest: Any) -> Any:
    return lambda self, group_id, places: honest(self, group_id, list(places))


def abort_counts(honest: Any) -> Any:
    return lambda event, step: honest(
        event.__class__(event.producer_id, event.epoch, True, event.counts, event.at), step
    )


def reader_is_not_heard(honest: Any) -> Any:
    return lambda event, step: honest(
        event.__class__(event.producer_id, event.epoch, event.committed, None, event.at), step
    )


def marker_takes_the_next_one_along(honest: Any) -> Any:
    return lambda self, producer_id, before: honest(self, producer_id, 1 << 62)


def marker_is_ignored(honest: Any) -> Any:
    return lambda event, step: None


def counts_at_once(honest: Any) -> Any:
    def written(event: Any, step: Step) -> None:
        honest(event, step)
        committed_offsets.take_transaction_end(
            committed_offsets.TxnMarkerRead(event.producer_id, event.epoch, True), step
        )

    return written


def what_is_written_is_stable(honest: Any) -> Any:
    def unstable(self: PendingPositions, group_id: str) -> Any:
        return self.of_group(group_id)

    return unstable


def what_waits_is_stable(honest: Any) -> Any:
    def unstable(self: PendingPositions, group_id: str) -> Any:
        return {place for group, places in self.writing.values() if group == group_id for place in places}

    return unstable


def never_over(honest: Any) -> Any:
    return lambda event, step: None


def written_twice(honest: Any) -> Any:
    return lambda self, record: self.keep(record)


def nobody_is_asked(honest: Any) -> Any:
    return lambda request, step: {}


def forgets_what_waits(honest: Any) -> Any:
    return lambda self, group_id: set()


MUTANTS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "a plain commit behind it does not count": (PendingPositions, "overtaken_by", plain_is_not_later),
    "the later transaction does not count": (PendingPositions, "overtaken", later_transaction_is_not_later),
    "an earlier one takes a later one along": (
        PendingPositions,
        "overtaken",
        earlier_transaction_takes_the_later_along,
    ),
    "an abort counts": (committed_offsets, "take_transaction_end", abort_counts),
    "the reader of the log is not heard": (committed_offsets, "take_transaction_end", reader_is_not_heard),
    "a marker ends the next transaction, too": (PendingPositions, "ended", marker_takes_the_next_one_along),
    "a marker is ignored": (committed_offsets, "take_transaction_end", marker_is_ignored),
    "it counts before its marker": (committed_offsets, "take_written", counts_at_once),
    "what is being written is stable": (PendingPositions, "unstable", what_is_written_is_stable),
    "what waits is stable": (PendingPositions, "unstable", what_waits_is_stable),
    "a refused write stays unstable": (committed_offsets, "finish_write", never_over),
    "what the log has is written once more": (Step, "learn", written_twice),
    "whoever asks may": (committed_offsets, "check_may_commit", nobody_is_asked),
    "tombstones and retention do not know what waits": (PendingPositions, "of_group", forgets_what_waits),
}


@pytest.fixture
def mutant(request: pytest.FixtureRequest) -> Iterator[None]:
    from muster.coordinator.core import shard

    owner, name, make = MUTANTS[request.param]
    broken = make(getattr(owner, name))
    events = {each: broken for each, handler in shard.HANDLERS.items() if handler is getattr(owner, name, None)}
    with patch.object(owner, name, broken), patch.dict(shard.HANDLERS, events):
        yield


@pytest.mark.parametrize("mutant", MUTANTS, indirect=True)
@pytest.mark.usefixtures("mutant")
def test_a_mutant_is_caught_by_a_story() -> None:
    assert not all(told(path) for path in STORIES)
