"""Links to other nodes, one to each, made when they are wanted and kept while they hold."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from muster.coordinator.config import Address
from muster.coordinator.replication.io.wire.link import LinkCaller, NodeLink
from muster.coordinator.replication.io.wire.reaching import LinkBroken
from muster.coordinator.replication.protocol.image import ClusterImage, ClusterNodeStatus

if TYPE_CHECKING:
    from ssl import SSLContext

REPLICATION = "REPLICATION"
"""The listener between nodes, in a node's registration."""

AddressOf: TypeAlias = Callable[[int], Address | None]


class LinkSettings(NamedTuple):
    """How this node calls others."""

    me: LinkCaller
    timeout_s: float = 2.0
    """Within which a link is made."""
    tls: "Callable[[], SSLContext] | None" = None
    """What the next link shows and believes; None: they are in the clear."""


def address_in(image: ClusterImage, node: int) -> Address | None:
    """Where the other nodes reach it; None where the image knows none that is there."""
    view = image.nodes.get(node)
    if view is None or view.status is ClusterNodeStatus.GONE:
        return None
    return next((Address(each.host, each.port) for each in view.endpoints if each.listener == REPLICATION), None)


class NodeLinks:
    """Requests that wait hold up what comes behind them: each kind of them has links of its own."""

    def __init__(self, calling: LinkSettings, address_of: AddressOf) -> None:
        self._calling = calling
        self._address_of = address_of
        self._made: dict[int, tuple[Address, NodeLink]] = {}
        self._making: dict[int, asyncio.Lock] = {}
        self._closed = False

    async def to(self, node: int) -> NodeLink:
        """Raises LinkError."""
        address = self._address_of(node)
        if address is None:
            raise LinkBroken(f"node {node} is not there, as far as this one knows")
        link = self._standing(node, address)
        if link is not None:
            return link
        async with self._making.setdefault(node, asyncio.Lock()):
            link = self._standing(node, address)
            if link is not None:
                return link
            calling = self._calling
            tls = None if calling.tls is None else calling.tls()
            link = await NodeLink.connect(address, calling.me, timeout_s=calling.timeout_s, tls=tls)
            if self._closed:
                link.close()
                raise LinkBroken("this node stops")
            self._made[node] = address, link
            return link

    def close(self) -> None:
        self._closed = True
        for _, link in self._made.values():
            link.close()
        self._made.clear()

    def standing(self, node: int) -> NodeLink | None:
        """One that is made already."""
        address = self._address_of(node)
        return None if address is None else self._standing(node, address)

    def _standing(self, node: int, address: Address) -> NodeLink | None:
        made = self._made.get(node)
        if made is None:
            return None
        if made[0] == address and made[1].open:
            return made[1]
        del self._made[node]
        made[1].close()
        return None
