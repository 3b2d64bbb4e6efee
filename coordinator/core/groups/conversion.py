"""What it takes to turn a group of one kind into one of another. The table is `core.groups.conversions`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import Step

G = TypeVar("G", bound=GroupData)
W = TypeVar("W")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class GroupConversion(Generic[G, W, C]):
    """One way. `why` is the type of what calls for it: a request, or what has become of the members.

    Check comes first, then change: `check` refuses by raising, and a conversion that was refused has changed nothing.
    What `check` has found out on the way is handed to `change`.
    """

    source: type[G]
    target: type[GroupData]
    why: type[W]
    when: Callable[[G, W, Step], bool]
    """Whether it is this group's turn; if not, the group answers as it is."""
    check: Callable[[G, W, Step], C]
    change: Callable[[G, W, C, Step], None]

    def made(self, group: G, why: W, step: Step) -> bool:
        """Convert the group if it is its turn. The group of that id is another one then: look it up again."""
        if not self.when(group, why, step):
            return False
        checked = self.check(group, why, step)
        self.change(group, why, checked, step)
        return True
