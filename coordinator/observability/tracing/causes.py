"""Which request set a rebalance off: what members and operators sent as `traceparent`, until the ledger names them.

Pure.
"""

from collections import OrderedDict
from typing import Final, TypeVar

from muster.coordinator.core.model.types import Cause, RebalanceEntry

Key = TypeVar("Key", tuple[str, str], tuple[str, int])

MAX_REMEMBERED: Final = 10_000
"""Requests that are remembered; the oldest go first."""

MAX_TRACEPARENT_CHARS: Final = 64
"""Characters of a `traceparent` of version 00, and some."""

MAX_NAME_CHARS: Final = 1_024
"""Characters of a group's and a culprit's name, together: what is longer is refused anyway, or nobody's name."""


CAUSES_WITHOUT_REQUEST: Final = frozenset(
    {
        *(Cause.SESSION_EXPIRED, Cause.SYNC_TIMEOUT, Cause.REBALANCE_TIMEOUT, Cause.HANDOFF_TIMEOUT),
        *(Cause.PARTITIONS_CHANGED, Cause.BROKERS_CHANGED, Cause.COORDINATOR_FAILOVER, Cause.LAG_IMBALANCE),
        *(Cause.DELAY_OVER, Cause.DEPLOY_OVER),
    }
)
"""What no request of the culprit's sets off: the clock does, or somebody whom the ledger does not name."""


class RequestTraces:
    """The last `traceparent` of each culprit of a group: whoever asked for something that may start a rebalance.

    An entry is told of when it is decided and again when it is whole. The request belongs to it that was there when it
    was decided: by the time it is whole, the same member may have set the next one off.
    """

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._late: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._decided: OrderedDict[tuple[str, int], str] = OrderedDict()

    def note(self, group_id: str, culprit: str, traceparent: str, *, late: bool = False) -> None:
        """A culprit is a member's id, or an operator as the ledger names him. What is too long is none.

        One without a `traceparent` counts as well: what the same one sent before belongs to something else. `late`: the
        member has its id by the answer only, which may come after the decision.
        """
        if not culprit or len(traceparent) > MAX_TRACEPARENT_CHARS or len(group_id) + len(culprit) > MAX_NAME_CHARS:
            return
        known, key = self._late if late else self._known, (group_id, culprit)
        known.pop(key, None)
        if traceparent:
            self._put(known, key, traceparent)

    def of(self, group_id: str, entry: RebalanceEntry, *, whole: bool) -> str:
        """The one that belongs to this entry; empty where there is none. It counts once."""
        key = (group_id, entry.number)
        found = self._decided.pop(key, None)
        if found is None:
            found = self._take(self._known, group_id, entry)
        found = self._take(self._late, group_id, entry) or found
        if not whole:
            self._put(self._decided, key, found)
        return found

    def _take(self, known: "OrderedDict[tuple[str, str], str]", group_id: str, entry: RebalanceEntry) -> str:
        found = known.pop((group_id, entry.culprit), "")
        return "" if entry.cause in CAUSES_WITHOUT_REQUEST else found

    def _put(self, known: "OrderedDict[Key, str]", key: Key, traceparent: str) -> None:
        known[key] = traceparent
        if len(known) > self._most:
            known.popitem(last=False)
