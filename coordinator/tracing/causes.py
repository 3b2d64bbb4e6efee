"""Which request set a rebalance off: what members and operators sent as `traceparent`, until the ledger names them.

Pure.
"""

from collections import OrderedDict
from typing import Final

MOST: Final = 10_000
"""Requests that are remembered; the oldest go first."""

LONGEST: Final = 64
"""Characters of a `traceparent` of version 00, and some."""

LONGEST_NAME: Final = 1_024
"""Characters of a group's and a culprit's name, together: what is longer is refused anyway, or nobody's name."""


class Causes:
    """The last `traceparent` of each culprit of a group: whoever asked for something that may start a rebalance."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    def note(self, group_id: str, culprit: str, traceparent: str) -> None:
        """A culprit is a member's id, or an operator as the ledger names him. What is too long is none."""
        if not culprit or len(traceparent) > LONGEST or len(group_id) + len(culprit) > LONGEST_NAME:
            return
        self._known[group_id, culprit] = traceparent
        self._known.move_to_end((group_id, culprit))
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def take(self, group_id: str, culprit: str) -> str:
        """The one that belongs to a rebalance by this member; empty when it sent none. It counts once."""
        return self._known.pop((group_id, culprit), "")
