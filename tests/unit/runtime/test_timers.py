"""What timers leave behind, and how pauses end. That timers ring as a dict of deadlines says is a property
(tests/property/runtime/test_timers_model.py)."""

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
