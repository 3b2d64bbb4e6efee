"""What one connection has under way, and what clients leave unread: who is refused, and who is cut off."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.errors import Overloaded
from muster.coordinator.server.grpc import load_limits as module
from muster.coordinator.server.grpc.load_limits import ConnectionLoad, ConnectionLoadLimits

MOST = 1_000


def play(story: Callable[[ConnectionLoad, list[str]], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        cut: list[str] = []
        await story(ConnectionLoad(ConnectionLoadLimits(max_calls=8, max_unsent_bytes=MOST), cut.append), cut)
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(run())


def test_a_quarter_of_the_calls_is_left_to_those_that_end_by_themselves() -> None:
    async def story(burden: ConnectionLoad, _: list[str]) -> None:
        for _each in range(6):
            burden.begin_call("a")
        with pytest.raises(Overloaded, match="6 of its 8 calls"):
            burden.begin_call("a")
        burden.begin_call("b")
        burden.end("a")
        burden.begin_call("a")

    play(story)


def test_the_room_for_an_answer_shrinks_to_one_batch() -> None:
    async def story(burden: ConnectionLoad, _: list[str]) -> None:
        assert burden.room("a") == MOST // 2
        first = burden.keep("a", 400)
        assert (burden.room("a"), burden.room("b")) == (100, 500)
        burden.keep("b", 700)
        assert (burden.room("a"), burden.room("c")) == (1, 1)
        burden.sent(first)
        assert burden.room("a") == 300

    play(story)


def test_who_leaves_some_unread_is_refused_before_who_reads() -> None:
    async def story(burden: ConnectionLoad, cut: list[str]) -> None:
        kept = [burden.keep("a", 5 * MOST)]
        assert burden.unsent == 5 * MOST, "a single answer is always taken"
        burden.sent(kept.pop())
        kept = [burden.keep("a", 900)]
        with pytest.raises(Overloaded, match="900 bytes of answers are unread on this connection"):
            burden.keep("a", 200)
        kept.append(burden.keep("b", 1_000))
        with pytest.raises(Overloaded, match="0 bytes of answers are unread on this connection, 1900 on all"):
            burden.keep("c", 200)
        for number in kept:
            burden.sent(number)
        assert burden.unsent == 0
        assert not cut, "nobody was slow"

    play(story)


def test_as_many_are_cut_off_as_it_takes_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    cut: list[str] = []

    async def story(burden: ConnectionLoad, cut_off: list[str]) -> None:
        nonlocal cut
        cut = cut_off
        for peer in "abc":
            burden.keep(peer, 300)
        burden.keep("a", 50)
        burden.keep("d", 100)  # 50 too many: "a" alone leaves 350
        burden.keep("e", 500)  # 550 too many, of which "a" will free 350

    play(story)
    assert sorted(cut) == ["a", "b"]
