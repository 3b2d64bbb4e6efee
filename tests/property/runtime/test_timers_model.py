"""Timers ring as a plain dict of deadlines says, whatever is done to it; of what is pushed back they need not hear."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.runtime.deadlines import SPARE_ENTRIES, TimerQueue

KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
TIMES = st.integers(0, 60)
COMMANDS = st.one_of(
    st.tuples(st.just("set"), KEYS, TIMES),
    st.tuples(st.just("push back"), KEYS, TIMES),
    st.tuples(st.just("cancel"), KEYS, TIMES),
    st.tuples(st.just("cancel_all"), KEYS, TIMES),
    st.tuples(st.just("move"), KEYS, TIMES),
    st.tuples(st.just("pop"), KEYS, TIMES),
)


@settings(deadline=None)
@given(st.lists(COMMANDS, max_size=200))
def test_timers_are_a_dict_that_rings(commands: list[tuple[str, str, int]]) -> None:
    model: dict[str, int] = {}
    timers: TimerQueue[str] = TimerQueue(lambda key: model.get(key))
    for command, key, at_ms in commands:
        match command:
            case "set":
                model[key] = at_ms
                timers.set(key, at_ms)
            case "push back":
                if key in model:
                    model[key] += at_ms
            case "cancel":
                timers.cancel(key)
                model.pop(key, None)
            case "cancel_all":
                timers.cancel_all(lambda one, last=key: one <= last)
                model = {one: deadline for one, deadline in model.items() if one > key}
            case "move":
                timers.move(at_ms)
                model = {one: deadline + at_ms for one, deadline in model.items()}
            case "pop":
                due = timers.pop_due(at_ms)
                assert due == first_due(model, at_ms)
        agree(timers, model)


def first_due(model: dict[str, int], now_ms: int) -> tuple[str, int] | None:
    if not model:
        return None
    deadline, key = min((deadline, key) for key, deadline in model.items())
    if deadline > now_ms:
        return None
    del model[key]
    return key, deadline


def agree(timers: TimerQueue[str], model: dict[str, int]) -> None:
    assert len(timers) == len(model)
    assert timers.entries <= 2 * len(model) + SPARE_ENTRIES
    if model:
        assert timers.next_ms is not None
        assert timers.next_ms <= min(model.values())
    else:
        assert timers.next_ms is None
