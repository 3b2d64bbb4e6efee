"""Assignors as one would rather not have them; named in tests as `tests.support.plugins:Raises`."""

import ctypes
import os
import signal
import threading
from collections.abc import Mapping, Sequence

from muster.assignors.api import Assignment, RebalanceProtocol, Snapshot


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

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        threading.Event().wait()
        raise AssertionError("nobody ever sets that event")


class Deals:
    """A plugin as it should be: partitions in turn to whoever subscribes to them."""

    name = "deals"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        plan: dict[str, dict[str, list[int]]] = {member.id: {} for member in snapshot.members}
        for topic in snapshot.subscribed_topics():
            readers = snapshot.subscribers(topic)
            for number in snapshot.partitions(topic):
                plan[readers[number % len(readers)]].setdefault(topic, []).append(number)
        return plan


class Loops(Deals):
    """In Python: it lets others run between two instructions."""

    name = "loops"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        while True:
            pass


class Counts(Deals):
    """In one call of C, which never lets anybody else run in its process."""

    name = "counts"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        sum(range(10**12))
        return super().assign(snapshot)


class Eats(Deals):
    name = "eats"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        eaten = []
        while True:
            eaten.append(bytearray(16 << 20))


class Exits(Deals):
    name = "exits"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        os._exit(3)


class Crashes(Deals):
    name = "crashes"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return super().assign(snapshot)


class Forks(Deals):
    name = "forks"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        while True:
            os.fork()


class ForksInC(Deals):
    """Past Python's own words for it: the child never comes back, and waits."""

    name = "forks-in-c"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        if ctypes.CDLL(None).fork() == 0:
            threading.Event().wait()
        return super().assign(snapshot)


class Twins(Deals):
    """A fork that comes back from `assign` beside its parent, with the same pipes."""

    name = "twins"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        child = ctypes.CDLL(None).fork()
        if child:
            os.waitpid(child, 0)
        return super().assign(snapshot)


class Prints(Deals):
    """Wherever it can: to both of its outputs, more than a pipe holds."""

    name = "prints"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        for descriptor in (1, 2):
            os.write(descriptor, b"spam " * 200_000)
        print("spam " * 200_000, flush=True)
        return super().assign(snapshot)


class Closes(Deals):
    """It closes what it finds open, and goes on."""

    name = "closes"

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        os.closerange(0, 1_000)
        threading.Event().wait()
        return super().assign(snapshot)


class Starves(Deals):
    """Says who it is to be, and is not to be had without saying it."""

    name = "starves"

    def __reduce__(self) -> str:
        raise TypeError("this one stays at home")


class Remembers(Deals):
    """Which process it runs in, as the note of its plan."""

    name = "remembers"

    def assign(self, snapshot: Snapshot) -> Assignment:  # type: ignore[override]
        return Assignment(super().assign(snapshot), note=str(os.getpid()))


NASTY = {
    Loops: "was not done after",
    Counts: "was not done after",
    Hangs: "was not done after",
    Closes: "ended its process before it had answered",
    Eats: "needed more memory than it may take",
    Exits: "exit code 3",
    Crashes: "killed by SIGSEGV",
    Forks: "may not start another",
    ForksInC: "left processes behind",
    Raises: "out of cheese",
    Forgets: "forgets",
}
"""What each of them does to its caller's plan, by a word of the sentence that says so."""
