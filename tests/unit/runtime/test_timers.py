"""Deadlines fire once, in order, and cost nothing to push back."""

from muster.coordinator.runtime.deadlines import SPARE_ENTRIES, RetryPauses, TimerQueue


class Alarms:
    """Timers, and the dict of deadlines that they look into."""

    def __init__(self) -> None:
        self.deadlines: dict[str, int] = {}
        self.timers: TimerQueue[str] = TimerQueue(self.deadlines.get)

    def set(self, key: str, at_ms: int) -> None:
        self.deadlines[key] = at_ms
        self.timers.set(key, at_ms)

    def cancel(self, key: str) -> None:
        self.deadlines.pop(key, None)
        self.timers.cancel(key)

    def due(self, now_ms: int) -> list[tuple[str, int]]:
        """What comes due, taken out of the deadlines one by one as it does."""
        fired = []
        while (item := self.timers.pop_due(now_ms)) is not None:
            del self.deadlines[item[0]]
            fired.append(item)
        return fired


def test_timers_fire_in_order_of_deadline_then_key() -> None:
    alarms = Alarms()
    for key, at_ms in (("c", 20), ("b", 10), ("a", 20), ("late", 31)):
        alarms.set(key, at_ms)
    assert alarms.due(30) == [("b", 10), ("a", 20), ("c", 20)]
    assert alarms.due(30) == []
    assert len(alarms.timers) == 1


def test_a_timer_is_due_at_its_deadline_not_before() -> None:
    alarms = Alarms()
    alarms.set("a", 10)
    assert alarms.due(9) == []
    assert alarms.due(10) == [("a", 10)]


def test_setting_again_replaces_in_both_directions() -> None:
    alarms = Alarms()
    alarms.set("later", 10)
    alarms.set("later", 30)
    alarms.set("sooner", 30)
    alarms.set("sooner", 5)
    assert alarms.due(29) == [("sooner", 5)]
    assert alarms.due(30) == [("later", 30)]


def test_a_pushed_back_timer_keeps_its_place_among_the_others() -> None:
    alarms = Alarms()
    alarms.set("a", 10)
    alarms.set("b", 20)
    alarms.set("a", 25)
    assert alarms.due(40) == [("b", 20), ("a", 25)]


def test_a_cancelled_timer_never_fires_and_may_be_set_again() -> None:
    alarms = Alarms()
    alarms.set("a", 10)
    alarms.cancel("a")
    alarms.cancel("never set")
    assert alarms.timers.next_ms is None
    assert alarms.due(100) == []
    alarms.set("a", 50)
    assert alarms.due(100) == [("a", 50)]


def test_a_timer_cancelled_and_set_later_fires_at_the_later_time_only() -> None:
    alarms = Alarms()
    alarms.set("a", 10)
    alarms.cancel("a")
    alarms.set("a", 50)
    assert alarms.due(49) == []
    assert alarms.due(50) == [("a", 50)]


def test_cancel_all_takes_the_doomed_and_leaves_the_rest() -> None:
    alarms = Alarms()
    for key in ("g1/a", "g1/b", "g2/a"):
        alarms.set(key, 10)
    alarms.timers.cancel_all(lambda key: key.startswith("g1/"))
    assert alarms.due(10) == [("g2/a", 10)]


def test_nothing_is_due_before_next_ms() -> None:
    alarms = Alarms()
    assert alarms.timers.next_ms is None
    alarms.set("a", 10)
    alarms.set("a", 40)
    assert alarms.timers.next_ms == 10  # a lower bound: looking moves nothing
    assert alarms.due(10) == []
    assert alarms.timers.next_ms == 40


def test_heartbeats_leave_no_litter() -> None:
    alarms = Alarms()
    members = [f"m{number}" for number in range(100)]
    for beat in range(1_000):
        for member in members:
            alarms.set(member, 45_000 + 3_000 * beat)
    assert alarms.timers.entries == len(members)


def test_deadlines_that_move_forward_leave_bounded_litter() -> None:
    alarms = Alarms()
    for at_ms in range(10_000, 0, -1):
        alarms.set("a", at_ms)
    assert alarms.timers.entries <= 2 + SPARE_ENTRIES
    assert alarms.due(10_000) == [("a", 1)]


def test_cancelled_timers_leave_bounded_litter() -> None:
    alarms = Alarms()
    for number in range(10_000):
        alarms.set(f"m{number}", 10)
        alarms.cancel(f"m{number}")
    assert alarms.timers.entries <= SPARE_ENTRIES


def test_a_deadline_is_pushed_back_without_a_word() -> None:
    alarms = Alarms()
    alarms.set("a", 10)
    alarms.deadlines["a"] = 40
    assert alarms.due(39) == []
    assert alarms.due(40) == [("a", 40)]


def test_a_deadline_that_is_gone_never_fires() -> None:
    alarms = Alarms()
    alarms.set("a", 10)
    del alarms.deadlines["a"]
    assert alarms.due(100) == []
    assert alarms.timers.next_ms is None


def test_pauses_end_one_after_the_other() -> None:
    pauses = RetryPauses()
    assert (pauses.next_ms, pauses.pop_due(100)) == (None, None)
    for shard, at_ms in ((7, 20), (3, 20), (5, 10), (1, 15)):
        pauses.set(shard, at_ms)
    pauses.cancel(1)
    pauses.cancel(2)
    assert pauses.next_ms == 10
    assert [pauses.pop_due(20) for _ in range(4)] == [5, 3, 7, None]
