"""Who may do what on a node: made, and imported, only where a setting asks for it."""

import asyncio
from typing import TYPE_CHECKING

from muster.coordinator.config import Settings
from muster.storage.broker.broker import Broker

if TYPE_CHECKING:
    from muster.coordinator.server.security.security import Security


async def security_of(settings: Settings, broker: Broker) -> "Security | None":
    """None where nobody is asked who they are. Raises SecurityDamaged, StorageError."""
    if settings.authorizer == "none":
        return None
    from muster.coordinator.server.security.security import Security

    security = Security(settings, broker)
    await asyncio.to_thread(security.load)
    return security
