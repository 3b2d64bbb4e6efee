"""What a process needs of the protocol its member speaks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from muster.client.members import actions as act
from muster.client.members.member_types import MembershipState
from muster.coordinator.core.model import effects, events


@dataclass(frozen=True, slots=True)
class Question:
    """A call to make for the machine, and how its answer reads."""

    request: Any
    timeout_ms: int
    translate: Callable[[int, Any], Any]


class Machine(Protocol):
    state: MembershipState
    member_id: str
    generation: int
    is_leader: bool

    @property
    def topics(self) -> tuple[str, ...]: ...

    def step(self, event: Any, now_ms: int) -> list[act.Action]: ...


class Part(Protocol):
    """A member's machine and its words."""

    @property
    def member(self) -> Machine: ...

    consumer: bool
    """It speaks KIP-848."""
    regex: str
    """The pattern of its subscription; empty for none."""
    named: bool
    """Its topics are names that no catalog knows."""

    @property
    def cooperative(self) -> bool: ...

    def reads(self, topics: dict[str, int]) -> set[tuple[str, int]]: ...

    def question(self, action: Any) -> Question: ...

    def farewell(self, action: Any) -> events.Request: ...

    def pushed(self, reply: effects.PushReply, generation: int) -> Any: ...
