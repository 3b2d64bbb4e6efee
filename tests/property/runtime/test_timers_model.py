"""Timers behave like a plain dict of deadlines, whatever is done to them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.runtime.timers import SPARE_ENTRIES, Timers

KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
TIMES = st.integers(0, 60)
COMMANDS = st.one_of(
    st.tuples(st.just("set"), KEYS, TIMES),
    st.tuples(st.just("cancel"), KEYS, TIMES),
    st.tuples(st.just("cancel_all"), KEYS, TIMES),
    st.tuples(st.just("move"), KEYS, TIMES),
    st.tuples(st.just("pop"), KEYS, TIMES),
)


@settings(deadline=None)
@given(st.lists(COMMANDS, max_size=200))
def test_timers_are_a_dict_that_rings(commands: list[tuple[str, str, int]]) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, int] = {}
    for command, key, at_ms in commands:
        match command:
            case "set":
                timers.set(key, at_ms)
                model[key] = at_ms
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
                assert timers.pop_due(at_ms) == first_due(model, at_ms)
        agree(timers, model)


def first_due(model: dict[str, int], now_ms: int) -> tuple[str, int] | None:
    if not model:
        return None
    deadline, key = min((deadline, key) for key, deadline in model.items())
    if deadline > now_ms:
        return None
    del model[key]
    return key, deadline


def agree(timers: Timers[str], model: dict[str, int]) -> None:
    assert len(timers) == len(model)
    assert all(timers.deadline(key) == deadline for key, deadline in model.items())
    assert timers.entries <= 2 * len(model) + SPARE_ENTRIES
    if model:
        assert timers.next_ms is not None
        assert timers.next_ms <= min(model.values())
    else:
        assert timers.next_ms is None
