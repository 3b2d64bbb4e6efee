"""What is wrong with this node at the moment: a name, a sentence, since when and how often. No clock, no I/O.

Whoever finds trouble reports it, again and again as long as it lasts, and clears it once it is over. One sentence is
then told everywhere: in the node's log once when it begins and once when it is over, in `muster health`, to probes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

MAX_CONDITIONS = 100
"""Conditions kept by name; what comes beyond that is counted under `MORE`."""

MORE = "more"

GROUPS = "coordinator.rpc.v1.GroupCoordinator"
LOG = "storage.rpc.v1.Broker"
"""Services that a condition can impair, by the names under which probes ask about them."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One trouble. `name` is "<kind>" or "<kind>:<of what>", such as "shard-failed:7".

    `sentence` says what is wrong and what to do. Times are epoch milliseconds; `until_ms` None: until it is cleared.
    """

    name: str
    sentence: str
    since_ms: int
    last_ms: int
    count: int = 1
    impairs: str = ""
    """The service that does not do its work as it should, if there is one."""
    until_ms: int | None = None


Listener: TypeAlias = Callable[[Condition, bool], None]
"""Gets a condition as it begins (True), and as it ends (False)."""


def ignore_condition(condition: Condition, begins: bool) -> None:
    """The default listener."""


class Conditions:
    """The registry of one node. All methods belong to one thread."""

    def __init__(self, now_ms: Callable[[], int], listener: Listener = ignore_condition) -> None:
        self.now_ms = now_ms
        self._listener = listener
        self._known: dict[str, Condition] = {}

    def report(self, name: str, sentence: str, *, impairs: str = "", lasting_ms: int | None = None) -> None:
        """There is trouble: for the first time, or still. The newest sentence counts.

        `lasting_ms`: what nobody will clear (a deadline missed, a stall) is over when it was not reported for so long.
        """
        now_ms = self.now_ms()
        until_ms = None if lasting_ms is None else now_ms + lasting_ms
        if name not in self._known and len(self.current()) >= MAX_CONDITIONS:
            name, until_ms = MORE, None
            sentence = f"more than {MAX_CONDITIONS} things are wrong; mend those that are named, and the rest shows"
        before = self._known.get(name)
        if before is None:
            self._known[name] = Condition(name, sentence, now_ms, now_ms, 1, impairs, until_ms)
            self._listener(self._known[name], True)
            return
        count = before.count + 1
        self._known[name] = replace(
            before, sentence=sentence, last_ms=now_ms, count=count, impairs=impairs, until_ms=until_ms
        )

    def clear(self, name: str) -> None:
        """It is over. What was never reported is no trouble."""
        condition = self._known.pop(name, None)
        if condition is not None:
            self._listener(condition, False)

    def current(self) -> tuple[Condition, ...]:
        """What is wrong now, oldest first. What has run out is over."""
        now_ms = self.now_ms()
        over = [c.name for c in self._known.values() if c.until_ms is not None and c.until_ms <= now_ms]
        for name in over:
            self.clear(name)
        if MORE in self._known and len(self._known) < MAX_CONDITIONS:
            self.clear(MORE)
        return tuple(sorted(self._known.values(), key=lambda condition: condition.since_ms))

    def sentence(self, name: str) -> str | None:
        """What is told of one condition, while it lasts."""
        known = self._known.get(name)
        return None if known is None else known.sentence

    def impaired(self) -> frozenset[str]:
        """The services that do not do their work as they should."""
        return frozenset(condition.impairs for condition in self.current() if condition.impairs)
