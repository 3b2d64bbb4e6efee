"""What stays is kept from the collector of garbage: logs that are made, and whatever outlived a look at everything."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from muster.coordinator.server.backend.upkeep import (
    ALL_EVERY_S,
    ALL_LOOKED_AT,
    FROZEN_AT_ONCE,
    GROWTH,
    LEAST_GROWTH_BYTES,
    SOONEST_S,
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


class World:
    """Its clock, and the memory of its process."""

    now_s = 100.0
    resident = 1 << 30

    def forward(self, seconds: float) -> None:
        self.now_s += seconds

    def grow(self, size: int) -> None:
        self.resident += size


@pytest.fixture
def world() -> Iterator[World]:
    """Of a freezer that is at work, as in a node's process."""
    world = World()
    freezer = SurvivorFreezer(lambda: world.now_s, lambda: world.resident)
    gc.callbacks.append(freezer)
    yield world
    gc.callbacks.remove(freezer)


def leave_garbage() -> "weakref.ref[Circle]":
    """What a look has passed over while it was on its way."""
    on_its_way = Circle()
    gc.collect(1)
    return weakref.ref(on_its_way)


@pytest.mark.parametrize("generation", [1, 2])
def test_what_outlives_a_look_is_passed_over_by_the_next(world: World, generation: int) -> None:
    kept = [[number] for number in range(10_000)]
    gc.collect(generation)
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects()) < len(kept)


def test_looks_at_the_youngest_alone_freeze_nothing(world: World) -> None:
    gc.collect(0)
    assert gc.get_freeze_count() == 0


def test_one_look_an_hour_finds_garbage_that_was_passed_over(world: World) -> None:
    garbage = leave_garbage()
    world.forward(ALL_EVERY_S - 1)
    gc.collect()
    assert garbage() is not None
    world.forward(1)
    gc.collect()
    assert garbage() is None
    assert gc.get_freeze_count() > 0


def test_a_process_that_has_grown_by_half_is_looked_through_but_not_all_the_time(world: World) -> None:
    """Garbage that was passed over for an hour could be more than there is memory."""
    growth = int((GROWTH - 1) * world.resident) + LEAST_GROWTH_BYTES
    garbage = leave_garbage()
    world.grow(growth)
    world.forward(SOONEST_S)
    gc.collect()
    assert garbage() is not None  # it has grown by less than what counts
    world.grow(1)
    gc.collect()
    assert garbage() is None
    garbage = leave_garbage()
    world.grow(2 * growth)
    gc.collect()
    assert garbage() is not None  # that is too soon
    world.forward(SOONEST_S)
    gc.collect()
    assert garbage() is None
    garbage = leave_garbage()
    world.forward(SOONEST_S)
    gc.collect()
    assert garbage() is not None  # it was no garbage that it has grown by: that is what it is now


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
