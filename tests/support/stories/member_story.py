"""One member, driven by hand on a virtual clock: what all generations of the protocol have in common."""

from typing import Any, TypeVar

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import Partitions

A = TypeVar("A")


class MemberStory:
    """Drives one member and keeps what it asked for last."""

    def __init__(self, member: Any) -> None:
        self.member = member
        self.now_ms = 0
        self.asked: list[act.Action] = []
        self._last: dict[type, act.Action] = {}

    def on(self, event: object) -> list[act.Action]:
        self.asked = self.member.step(event, self.now_ms)
        self._last |= {type(action): action for action in self.asked}
        return self.asked

    def wait(self, ms: int) -> list[act.Action]:
        self.now_ms += ms
        return self.on(ev.TimerExpired())

    def the(self, kind: type[A]) -> A:
        found = [action for action in self.asked if isinstance(action, kind)]
        assert len(found) == 1, f"expected one {kind.__name__} in {self.asked}"
        return found[0]

    def the_last(self, kind: type[A]) -> A:
        """Asked for at any time."""
        found = self._last[kind]
        assert isinstance(found, kind)
        return found

    def has(self, kind: type[act.Action]) -> bool:
        return any(isinstance(action, kind) for action in self.asked)


def t(*partitions: int) -> Partitions:
    return tuple(("t", partition) for partition in partitions)
