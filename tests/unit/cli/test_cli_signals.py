"""Ctrl-C and SIGTERM: the first one asks, the second one insists."""

import signal
import weakref
from collections.abc import Iterator

import pytest

from muster.cli.common.commands import STOP_SIGNALS, interrupt_on_signals, raise_if_interrupted, stop_on_signal


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", STOP_SIGNALS)
@pytest.mark.parametrize("second", STOP_SIGNALS)
def test_the_first_signal_sets_the_event_and_the_second_interrupts(
    first: signal.Signals, second: signal.Signals
) -> None:
    stopping = stop_on_signal()
    assert not stopping.is_set()
    signal.raise_signal(first)
    assert stopping.is_set()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(second)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_interrupts_where_a_command_wants_it_to(number: signal.Signals) -> None:
    interrupt_on_signals()
    raise_if_interrupted()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_an_interruption_that_nobody_heard_is_raised_at_the_next_look(number: signal.Signals) -> None:
    """Python drops what is raised in the callback of a weak reference."""

    class Kept:
        pass

    interrupt_on_signals()
    kept = Kept()
    watched = weakref.ref(kept, lambda gone: signal.raise_signal(number))
    del kept
    assert watched() is None
    with pytest.raises(KeyboardInterrupt):
        raise_if_interrupted()


def test_ctrl_c_stays_ignored_where_it_was() -> None:
    """As of a script's background job, which Ctrl-C at the prompt does not concern."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupt_on_signals()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
