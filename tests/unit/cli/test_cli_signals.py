"""Ctrl-C and SIGTERM: the first one asks, the second one insists."""

import signal
from collections.abc import Iterator

import pytest

from muster.coordinator.cli.common.signals import ENDINGS, interrupt_on_sigterm, stop_on_signal


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDINGS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", ENDINGS)
@pytest.mark.parametrize("second", ENDINGS)
def test_the_first_signal_sets_the_event_and_the_second_interrupts(
    first: signal.Signals, second: signal.Signals
) -> None:
    stopping = stop_on_signal()
    assert not stopping.is_set()
    signal.raise_signal(first)
    assert stopping.is_set()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(second)


def test_sigterm_interrupts_where_a_command_wants_it_to() -> None:
    interrupt_on_sigterm()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
