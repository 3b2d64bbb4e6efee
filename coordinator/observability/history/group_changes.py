"""Which groups have changed since a mark, for pages that follow changes as they happen. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

MOST_GROUPS: Final = 10_000
"""Groups whose last change is remembered; of older changes it is only known that there were some."""

MOST_NAMES: Final = 100
"""Groups that are named at once."""


@dataclass(frozen=True, slots=True)
class ChangeNews:
    """What changed. `all_known` False: more than is named here."""

    mark: str
    groups: Sequence[str]
    all_known: bool = True

    def __bool__(self) -> bool:
        return bool(self.groups) or not self.all_known


class GroupChanges:
    """Of one node. `life` tells its process from those before: their marks mean nothing any more."""

    def __init__(self, life: str) -> None:
        self.closed = False
        self._life = life
        self._count = 0
        self._last: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0
        self._restless: set[str] = set()
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Called after each change, and when there will be none any more; it must be quick."""
        self._listeners.append(listener)

    def note(self, group_id: str, *, restless: bool | None = None) -> None:
        """The group is not as it was; the empty name is the node. `restless`: whether it goes on changing, if known.

        Who it is that a rebalance waits for changes while it goes on, and is not noted each time.
        """
        if restless:
            self._restless.add(group_id)
        elif restless is False:
            self._restless.discard(group_id)
        self._count += 1
        self._last[group_id] = self._count
        self._last.move_to_end(group_id)
        if len(self._last) > MOST_GROUPS:
            _, self._forgotten = self._last.popitem(last=False)
        self._notify_listeners()

    def note_restless(self) -> None:
        """Those that go on changing may have changed again."""
        for group_id in sorted(self._restless)[:MOST_NAMES]:
            self.note(group_id)

    def close(self) -> None:
        self.closed = True
        self._notify_listeners()

    def mark(self) -> str:
        """This moment, for `since`."""
        return f"{self._life}-{self._count}"

    def since(self, mark: str, groups: Collection[str] = ()) -> ChangeNews:
        """What changed after the mark, the latest first; of `groups`, where any are given."""
        life, _, text = mark.rpartition("-")
        if life != self._life or not text.isascii() or not text.isdigit() or int(text) > self._count:
            return ChangeNews(self.mark(), (), all_known=False)
        seen = int(text)
        if groups:
            names = [name for name in groups if self._last.get(name, 0) > seen]
            return ChangeNews(self.mark(), names, all_known=seen >= self._forgotten or len(names) == len(groups))
        named: list[str] = []
        for name in reversed(self._last):
            if self._last[name] <= seen:
                break
            if len(named) == MOST_NAMES:
                return ChangeNews(self.mark(), named, all_known=False)
            named.append(name)
        return ChangeNews(self.mark(), named, all_known=seen >= self._forgotten)

    def _notify_listeners(self) -> None:
        for listener in self._listeners:
            listener()
