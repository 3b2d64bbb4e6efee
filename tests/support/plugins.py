"""Assignors as one would rather not have them; named in tests as `tests.support.plugins:Raises`."""

import threading
from collections.abc import Mapping, Sequence

from assignors.api import RebalanceProtocol, Snapshot


class Raises:
    name = "raises"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        raise ZeroDivisionError("out of cheese")


class Forgets:
    name = "forgets"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        return {snapshot.members[0].id: {"t": [0]}}


class Hangs:
    name = "hangs"
    protocol = RebalanceProtocol.EAGER
    begun = 0
    """How often it was asked, in this process."""

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        Hangs.begun += 1
        threading.Event().wait()
        raise AssertionError("nobody ever sets that event")
