"""What the log finds wrong with itself becomes conditions of the node."""

from collections.abc import Sequence
from typing import Protocol

from muster.coordinator.runtime.conditions import LOG, Conditions

PASSING_MS = 60_000
"""What is not met again for so long is over: a disk that has room again, a read that works."""


class Trouble(Protocol):
    """One trouble, as `muster.storage.troubles` tells of it."""

    @property
    def name(self) -> str: ...

    @property
    def sentence(self) -> str: ...

    @property
    def times(self) -> int: ...

    @property
    def passing(self) -> bool: ...


class Troubles(Protocol):
    """Those of a broker."""

    def current(self) -> Sequence[Trouble]: ...


class LogTroubles:
    """Carries the troubles of a broker's logs over to the conditions; called every now and then, on the loop."""

    def __init__(self, troubles: Troubles, conditions: Conditions) -> None:
        self._troubles = troubles
        self._conditions = conditions
        self._told: dict[str, int] = {}

    def carry(self) -> None:
        """Report what is new or was met again, clear what is no more."""
        current = self._troubles.current()
        for trouble in current:
            if trouble.times != self._told.get(trouble.name):
                lasting_ms = PASSING_MS if trouble.passing else None
                self._conditions.report(trouble.name, trouble.sentence, impairs=LOG, lasting_ms=lasting_ms)
        for name in self._told.keys() - {trouble.name for trouble in current}:
            self._conditions.clear(name)
        self._told = {trouble.name: trouble.times for trouble in current}
