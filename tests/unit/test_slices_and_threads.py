"""Long work: each turn of the loop has one slice, however many pieces are under way; two threads do the rest."""

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from muster import long_work
from muster.long_work import LoopSlice, make_aside, slice_queue, sort_in_runs, work_through


async def turns_taken(work: int, slices: int) -> tuple[list[int], list[int]]:
    """How many slices each turn of the loop had, and the order in which the pieces had theirs."""
    at_once, order, turn, over = [0], list[int](), asyncio.get_running_loop(), False

    def next_turn() -> None:
        at_once.append(0)
        if not over:
            turn.call_soon(next_turn)

    async def piece(number: int) -> None:
        breath = LoopSlice()
        for _ in range(slices):
            await breath.yield_if_used()
            at_once[-1] += 1
            order.append(number)

    turn.call_soon(next_turn)
    await asyncio.gather(*(piece(number) for number in range(work)))
    over = True
    return at_once, order


def test_each_turn_of_the_loop_has_one_slice_and_each_piece_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work, "SLICE_S", 0.0)
    at_once, order = asyncio.run(turns_taken(5, 20))
    assert max(at_once) == 1
    assert order == [0, 1, 2, 3, 4] * 20


def test_one_that_is_given_up_while_it_waits_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work, "SLICE_S", 0.0)

    async def story() -> None:
        waiting = [asyncio.ensure_future(LoopSlice().yield_if_used()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[1].cancel()
        await waiting[2]
        assert not len(slice_queue())

    asyncio.run(story())


def test_what_is_done_within_its_slice_waits_for_nobody() -> None:
    async def story() -> None:
        breath = LoopSlice()
        await breath.yield_if_used()
        assert not len(slice_queue())

    asyncio.run(story())


def test_large_answers_are_made_in_one_thread_large_requests_worked_through_in_another_and_small_ones_here() -> None:
    async def play() -> None:
        here = threading.get_ident()
        assert await make_aside(threading.get_ident, 3) == here
        threads = await asyncio.gather(*(make_aside(threading.get_ident, 100_000) for _ in range(5)))
        assert len({*threads}) == 1
        assert here not in threads
        assert await work_through(threading.get_ident, 3) == here
        assert await work_through(threading.get_ident, 100_000) not in {here, *threads}

    asyncio.run(play())


def test_large_answers_are_sorted_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of `sorted` for 50,000 entries kept the loop waiting for 60 ms: it lets go of the interpreter only when
    it is done."""
    longest = 0

    def noted(items: Iterable[Any], **how: Any) -> list[Any]:
        nonlocal longest
        some = list(items)
        longest = max(longest, len(some))
        return sorted(some, **how)

    monkeypatch.setattr(long_work, "sorted", noted, raising=False)
    rows = [(number * 7919 % 10_007, number) for number in range(20_000)]
    assert sort_in_runs(rows) == sorted(rows)
    assert sort_in_runs(rows, lambda row: row[0]) == sorted(rows, key=lambda row: row[0])  # equal ones in their order
    assert longest <= 1_000
    assert sort_in_runs([]) == []
