"""Deadlines fire once, in order, and cost nothing to push back."""

from muster.coordinator.runtime.timers import SPARE_ENTRIES, Timers


def due(timers: Timers[str], now_ms: int) -> list[tuple[str, int]]:
    fired = []
    while (item := timers.pop_due(now_ms)) is not None:
        fired.append(item)
    return fired


def test_timers_fire_in_order_of_deadline_then_key() -> None:
    timers: Timers[str] = Timers()
    for key, at_ms in (("c", 20), ("b", 10), ("a", 20), ("late", 31)):
        timers.set(key, at_ms)
    assert due(timers, 30) == [("b", 10), ("a", 20), ("c", 20)]
    assert due(timers, 30) == []
    assert len(timers) == 1


def test_a_timer_is_due_at_its_deadline_not_before() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    assert due(timers, 9) == []
    assert due(timers, 10) == [("a", 10)]


def test_setting_again_replaces_in_both_directions() -> None:
    timers: Timers[str] = Timers()
    timers.set("later", 10)
    timers.set("later", 30)
    timers.set("sooner", 30)
    timers.set("sooner", 5)
    assert due(timers, 29) == [("sooner", 5)]
    assert due(timers, 30) == [("later", 30)]


def test_a_pushed_back_timer_keeps_its_place_among_the_others() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("b", 20)
    timers.set("a", 25)
    assert due(timers, 40) == [("b", 20), ("a", 25)]


def test_a_cancelled_timer_never_fires_and_may_be_set_again() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.cancel("never set")
    assert timers.next_ms is None
    assert due(timers, 100) == []
    timers.set("a", 50)
    assert timers.deadline("a") == 50
    assert due(timers, 100) == [("a", 50)]


def test_a_timer_cancelled_and_set_later_fires_at_the_later_time_only() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.set("a", 50)
    assert due(timers, 49) == []
    assert due(timers, 50) == [("a", 50)]


def test_cancel_all_takes_the_doomed_and_leaves_the_rest() -> None:
    timers: Timers[str] = Timers()
    for key in ("g1/a", "g1/b", "g2/a"):
        timers.set(key, 10)
    timers.cancel_all(lambda key: key.startswith("g1/"))
    assert due(timers, 10) == [("g2/a", 10)]


def test_nothing_is_due_before_next_ms() -> None:
    timers: Timers[str] = Timers()
    assert timers.next_ms is None
    timers.set("a", 10)
    timers.set("a", 40)
    assert timers.next_ms == 10  # a lower bound: looking moves nothing
    assert due(timers, 10) == []
    assert timers.next_ms == 40


def test_heartbeats_leave_no_litter() -> None:
    timers: Timers[str] = Timers()
    members = [f"m{number}" for number in range(100)]
    for beat in range(1_000):
        for member in members:
            timers.set(member, 45_000 + 3_000 * beat)
    assert timers.entries == len(members)


def test_deadlines_that_move_forward_leave_bounded_litter() -> None:
    timers: Timers[str] = Timers()
    for at_ms in range(10_000, 0, -1):
        timers.set("a", at_ms)
    assert timers.entries <= 2 + SPARE_ENTRIES
    assert due(timers, 10_000) == [("a", 1)]


def test_cancelled_timers_leave_bounded_litter() -> None:
    timers: Timers[str] = Timers()
    for number in range(10_000):
        timers.set(f"m{number}", 10)
        timers.cancel(f"m{number}")
    assert timers.entries <= SPARE_ENTRIES
