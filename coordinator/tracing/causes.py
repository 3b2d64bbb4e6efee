"""Which request set a rebalance off: what members sent as `traceparent`, until the ledger names them. Pure."""

from collections import OrderedDict
from typing import Final

MOST: Final = 10_000
"""Requests that are remembered; the oldest go first."""

LONGEST: Final = 64
"""Characters of a `traceparent` of version 00, and some."""


class Causes:
    """The last `traceparent` of each member of a group that asked for something that may start a rebalance."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    def note(self, group_id: str, member_id: str, traceparent: str) -> None:
        """What is too long is none."""
        if not member_id or len(traceparent) > LONGEST:
            return
        self._known[group_id, member_id] = traceparent
        self._known.move_to_end((group_id, member_id))
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def take(self, group_id: str, culprit: str) -> str:
        """The one that belongs to a rebalance by this member; empty when it sent none. It counts once."""
        return self._known.pop((group_id, culprit), "")
