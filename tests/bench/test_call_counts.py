"""How many Python functions a node calls for a request, at most. The counts are exact: no clock has a say in them."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.workshop.bench import call_counts
from muster.workshop.bench.call_counts import CALL_BUDGETS, count_calls, counted_node

pytestmark = pytest.mark.integration

SLACK = 1.01
"""Of a budget: what a node does every second may come in between."""

LOW = 0.95
"""Less than this of a budget, and the budget is out of date."""


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, float]:
    return count_calls(str(tmp_path_factory.mktemp("node")))


@pytest.mark.parametrize("request_name", CALL_BUDGETS)
def test_a_request_takes_no_more_calls_than_its_budget(counts: Mapping[str, float], request_name: str) -> None:
    assert counts[request_name] <= CALL_BUDGETS[request_name] * SLACK, (
        f"{request_name} takes {counts[request_name]:.1f} calls; its budget is {CALL_BUDGETS[request_name]}. "
        "Ask less, or say in the commit why it has to be more"
    )


@pytest.mark.parametrize("request_name", CALL_BUDGETS)
def test_a_budget_is_lowered_with_the_calls(counts: Mapping[str, float], request_name: str) -> None:
    assert counts[request_name] >= CALL_BUDGETS[request_name] * LOW, (
        f"{request_name} takes {counts[request_name]:.1f} calls: lower its budget of {CALL_BUDGETS[request_name]}"
    )


def test_what_a_node_does_by_its_clock_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def helper() -> None:
        pass

    def beat() -> None:
        helper()

    def answer() -> None:
        helper()
        done.set()

    monkeypatch.setattr(call_counts, "BY_CLOCK", {beat.__code__})
    with running_loop() as loop:
        counter = call_counts.CallCounter(loop)

        def receive() -> None:
            for each in (beat, answer):
                loop.call_soon_threadsafe(each)
            done.wait()

        counter.count(lambda: None, receive)
    assert (counter.calls[beat.__code__], counter.calls[answer.__code__], counter.calls[helper.__code__]) == (0, 1, 1)


def test_rounds_go_on_until_two_agree_on_the_least_of_each_count() -> None:
    rounds = iter([(9, 5), (8, 5), (7, 5), (6, 5), (5, 5), (4, 5), (3, 5), (3, 5), (2, 5)])
    assert call_counts.count_until_agreed(lambda: next(rounds)) == [3, 5]
    assert next(rounds) == (2, 5)


def test_calls_of_other_threads_are_not_counted(tmp_path: Path) -> None:
    with counted_node(str(tmp_path), {}) as (address, counter):
        alone = call_counts.count_heartbeats(address, counter)
        member = call_counts.one_member(address, "beside")
        beat = member.member.beat()

        def send() -> None:
            for _ in range(1_000):
                member.request("Heartbeat", call_counts.BEAT, call_counts.struct("HeartbeatRequest")())
            member.send(beat)

        counted = [counter.count(send, member.receive) for _ in range(3)]
        member.close()
        assert min(counted) < alone + 50, "a thousand requests were made meanwhile, of more than ten calls each"
