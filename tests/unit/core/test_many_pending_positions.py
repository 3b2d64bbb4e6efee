"""Very many positions of one transaction: what a marker does about them is done by whole dictionaries."""

import sys
from collections.abc import Callable, KeysView
from types import FrameType
from typing import Any

import pytest

from muster.coordinator.core.model.events import Loaded, OffsetFetch, TopicsChanged, TxnEnded, TxnOffsetCommit
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard


def shard_with_pending(positions: int) -> Shard:
    """They are of producer 7, in group g."""
    shard = Shard(Limits(), 0)
    shard.step(TopicsChanged({"t": positions}), 0)
    shard.step(Loaded(), 0)
    offsets = {("t", number): (5, -1, "") for number in range(positions)}
    shard.step(TxnOffsetCommit(1, "g", "", None, -1, offsets, 7, 0), 1)
    return shard


def count_events(act: Callable[[], object]) -> int:
    """Calls of functions, and returns from them."""
    events = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal events
        events += 1

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return events


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_makes_no_call_for_each_position(commit: bool) -> None:
    """Of more than these there are slices, a turn for each."""
    few, many = shard_with_pending(10), shard_with_pending(2_000)
    ended = TxnEnded(2, 7, 0, commit, 0)
    assert count_events(lambda: few.step(ended, 2)) == count_events(lambda: many.step(ended, 2))
    (_, reply) = many.step(OffsetFetch(3, "g", None, require_stable=True), 3).replies[0]
    assert (len(reply.offsets), reply.refused) == (2_000 if commit else 0, {})  # type: ignore[union-attr]


def test_a_look_at_one_position_does_not_go_through_what_waits() -> None:
    """Each fetch that wanted stable positions made a set of all that waited."""
    shard = shard_with_pending(10)
    (_, reply) = shard.step(OffsetFetch(3, "g", (("t", 4), ("t", 99)), require_stable=True), 2).replies[0]
    assert list(reply.refused) == [("t", 4)]  # type: ignore[union-attr]
    unstable = shard.state.pending.unstable("g")
    assert isinstance(unstable, KeysView)
    assert unstable == {("t", number) for number in range(10)}
