"""What stays is kept from the collector of garbage: logs that are made, and whatever outlived a look at everything."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from muster.coordinator.server.backend.upkeep import (
    ALL_EVERY_S,
    ALL_LOOKED_AT,
    FROZEN_AT_ONCE,
    LogFreezer,
    SurvivorFreezer,
)


class Circle:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Iterator[Clock]:
    """The clock of a freezer that is at work, as in a node's process."""
    clock = Clock()
    freezer = SurvivorFreezer(clock)
    gc.callbacks.append(freezer)
    yield clock
    gc.callbacks.remove(freezer)


def test_what_outlives_a_look_at_the_oldest_is_passed_over_by_the_next(clock: Clock) -> None:
    kept = [[number] for number in range(10_000)]
    gc.collect()
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects()) < len(kept)


def test_looks_at_the_young_freeze_nothing(clock: Clock) -> None:
    gc.collect(0)
    gc.collect(1)
    assert gc.get_freeze_count() == 0


def test_one_look_an_hour_finds_garbage_that_was_passed_over(clock: Clock) -> None:
    on_its_way = Circle()
    garbage = weakref.ref(on_its_way)
    gc.collect()
    del on_its_way
    clock.now_s += ALL_EVERY_S - 1
    gc.collect()
    assert garbage() is not None
    clock.now_s += 1
    gc.collect()
    assert garbage() is None
    assert gc.get_freeze_count() > 0


def test_logs_are_passed_over_once_there_are_some() -> None:
    long_lived = LogFreezer()
    for _ in range(FROZEN_AT_ONCE - 1):
        long_lived.changed(1)
    assert gc.get_freeze_count() == 0
    garbage = weakref.ref(Circle())
    long_lived.changed(1)
    assert gc.get_freeze_count() > 0
    assert garbage() is None


def test_each_look_is_at_what_is_new() -> None:
    """What was passed over once is not looked at again."""
    long_lived, kept = LogFreezer(), [[number] for number in range(10_000)]
    long_lived.changed(FROZEN_AT_ONCE)
    assert len(gc.get_objects()) < len(kept)
    long_lived.changed(FROZEN_AT_ONCE)
    assert len(gc.get_objects()) < len(kept)


def test_logs_that_come_and_go_keep_nothing_that_is_on_its_way() -> None:
    """What was passed over, and ends as garbage that only the collector finds, would stay for ever."""
    long_lived, on_its_way = LogFreezer(), Circle()
    for _ in range(10 * FROZEN_AT_ONCE):
        long_lived.changed(2)
        long_lived.changed(-2)
    garbage = weakref.ref(on_its_way)
    del on_its_way
    gc.collect()
    assert garbage() is None


def test_a_large_topic_that_comes_and_goes_has_nobody_look_through_all_that_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That takes 50 ms with 10,000 partitions and seconds with millions of positions: nobody else is answered then."""
    long_lived, looks = LogFreezer(), []
    monkeypatch.setattr(gc, "unfreeze", lambda: looks.append(1))
    for _ in range(ALL_LOOKED_AT // 10_000 - 1):
        long_lived.changed(10_000)
        long_lived.changed(-10_000)
    assert looks == []


def test_once_very_many_have_gone_all_is_looked_through() -> None:
    long_lived, on_its_way = LogFreezer(), Circle()
    long_lived.changed(FROZEN_AT_ONCE)
    garbage = weakref.ref(on_its_way)
    del on_its_way
    for _ in range(9):
        long_lived.changed(-ALL_LOOKED_AT // 10)
        long_lived.changed(FROZEN_AT_ONCE)
    assert garbage() is not None
    long_lived.changed(-ALL_LOOKED_AT // 10)
    long_lived.changed(FROZEN_AT_ONCE)
    assert garbage() is None
    assert gc.get_freeze_count() > 0
