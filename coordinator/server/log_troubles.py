"""What the log finds wrong with itself becomes conditions of the node."""

from collections.abc import Sequence
from typing import Protocol

from muster.coordinator.runtime.conditions import LOG, Conditions

PASSING_MS = 60_000
"""What is not met again for so long is over: a read that works. Of room that is there again the node knows sooner."""

DISK_FULL = "disk-full"


class LogTrouble(Protocol):
    """One trouble, as `muster.storage.troubles` tells of it."""

    @property
    def name(self) -> str: ...

    @property
    def sentence(self) -> str: ...

    @property
    def times(self) -> int: ...

    @property
    def passing(self) -> bool: ...

    @property
    def wanted(self) -> int: ...


class LogTroubleSource(Protocol):
    """Those of a broker."""

    def current(self) -> Sequence[LogTrouble]: ...


class LogConditions:
    """Carries the troubles of a broker's logs over to the conditions; called every now and then, on the loop."""

    def __init__(self, troubles: LogTroubleSource, conditions: Conditions) -> None:
        self._troubles = troubles
        self._conditions = conditions
        self._told: dict[str, int] = {}
        self._wanted = 0

    def still_wanted(self) -> int:
        """How many bytes found no room when somebody last wanted to write; 0 when that is over, or goes on."""
        full = next((trouble for trouble in self._troubles.current() if trouble.name == DISK_FULL), None)
        return self._wanted if full is not None and full.times == self._told.get(DISK_FULL) else 0

    def found_room(self) -> None:
        """What had found no room would find it now."""
        self._wanted = 0

    def carry(self) -> None:
        """Report what is new or was met again, clear what is no more."""
        current = self._troubles.current()
        for trouble in current:
            if trouble.times != self._told.get(trouble.name):
                if trouble.name == DISK_FULL:
                    self._wanted = max(self._wanted, trouble.wanted, 1)
                lasting_ms = PASSING_MS if trouble.passing else None
                self._conditions.report(trouble.name, trouble.sentence, impairs=LOG, lasting_ms=lasting_ms)
        for name in self._told.keys() - {trouble.name for trouble in current}:
            self._conditions.clear(name)
        self._told = {trouble.name: trouble.times for trouble in current}
