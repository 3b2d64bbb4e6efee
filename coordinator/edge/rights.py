"""What a member may read: asked by the doors as they tell the groups of it."""

from typing import Final, Protocol

from muster.coordinator.core.model.rights import Rights
from muster.coordinator.security.identity import Identity


class TopicRightsSource(Protocol):
    """Everything on the node's loop. A heartbeat feels each call: it looks at `moment` itself, and at `Identity.told`.

    Who was told in this moment has the same rights still, and need not be asked for.
    """

    @property
    def moment(self) -> object:
        """Another object as soon as anybody may have other rights; None where nobody ever has."""

    def of(self, who: Identity) -> Rights:
        """Notes it in `who.told`."""


class UnrestrictedRights:
    """Where nobody is asked."""

    moment: Final = None

    def of(self, who: Identity) -> Rights:
        return None


UNRESTRICTED: Final = UnrestrictedRights()
