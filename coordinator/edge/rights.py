"""What a member may read: asked by the doors as they tell the groups of it."""

from collections.abc import Callable
from typing import TypeAlias

from muster.coordinator.core.rights import Rights
from muster.coordinator.security.identity import Identity

RightsOf: TypeAlias = Callable[[Identity], Rights]


def everything(who: Identity) -> Rights:
    """Where nobody is asked."""
    return None
