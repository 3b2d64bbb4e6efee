"""Slices of long work: however many pieces are under way, each turn of the loop has one slice of one of them."""

import asyncio

import pytest

from muster.coordinator.edge import large_answers
from muster.long_work import LoopSlice, slice_queue


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
    monkeypatch.setattr(large_answers, "SLICE_S", 0.0)
    at_once, order = asyncio.run(turns_taken(5, 20))
    assert max(at_once) == 1
    assert order == [0, 1, 2, 3, 4] * 20


def test_one_that_is_given_up_while_it_waits_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_answers, "SLICE_S", 0.0)

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
