"""Makes connections to brokers of the upstream for those of clients."""

import asyncio
from typing import Final

from muster.coordinator.config import Address
from muster.coordinator.kafka.dispatch import HangUp
from muster.coordinator.kafka_backend.proxy.leg import BrokerConnection, OpensBrokerConnection
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError, describe_address
from muster.coordinator.kafka_backend.upstream.greeting import open_connection
from muster.coordinator.kafka_backend.upstream.reach import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream import Upstream

LOOKS_S: Final = 1.0
"""Who the brokers are is asked for at most so often when a client wants one that is not there."""


class BrokerConnector:
    """`upstream` knows who the brokers are. logged_in: as whom connections are let in there before anything of a client
    passes; None: clients show that themselves, where anybody asks."""

    def __init__(self, upstream: Upstream, logged_in: UpstreamAddress | None = None) -> None:
        self._upstream = upstream
        self._logged_in = logged_in
        self._tasks: set[asyncio.Task[None]] = set()
        self._looked_s = -LOOKS_S
        self._turn = 0

    def to(self, broker: int) -> tuple[str, OpensBrokerConnection]:
        """Raises HangUp where there is no such broker."""
        address = self._upstream.view.brokers.get(broker)
        if address is None:
            self._look()
            raise HangUp(f"the upstream has no broker {broker}, as far as is known")
        return f"broker {broker} of the upstream", lambda leg: self._begin(leg, [address])

    def to_any(self) -> tuple[str, OpensBrokerConnection]:
        """Each time another one comes first; those that could not be reached last come last."""
        upstream = self._upstream
        found = list(dict.fromkeys((*upstream.view.brokers.values(), *upstream.reach.servers)))
        self._turn = (self._turn + 1) % len(found)
        found = found[self._turn :] + found[: self._turn]
        return "the upstream", lambda leg: self._begin(leg, sorted(found, key=upstream.lines.failures))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _begin(self, leg: BrokerConnection, addresses: list[Address]) -> None:
        self._keep(asyncio.get_running_loop().create_task(self._connect(leg, addresses)))

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, leg: BrokerConnection, addresses: list[Address]) -> None:
        why = ""
        for address in addresses:
            try:
                await self._to_address(leg, address)
                return
            except TimeoutError:
                why = f"{describe_address(address)} cannot be reached within {self._upstream.reach.connect_s:g} s"
            except OSError as error:  # ssl.SSLError is one
                why = f"{describe_address(address)} cannot be reached: {error.strerror or error}"
            except UpstreamError as error:
                why = str(error)
        self._look()
        leg.failed(why)

    async def _to_address(self, leg: BrokerConnection, address: Address) -> None:
        if self._logged_in is not None:
            line = await open_connection(address, self._logged_in)
            line.hand_over(leg)
            leg.ends_at(line.stale_s)
            return
        reach = self._upstream.reach
        tls = None if reach.certificates is None else reach.certificates.context()
        async with asyncio.timeout(reach.connect_s):
            await asyncio.get_running_loop().create_connection(
                lambda: leg, *address, ssl=tls, server_hostname=None if tls is None else address.host
            )

    def _look(self) -> None:
        """A broker may have come, or moved."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._looked_s >= LOOKS_S:
            self._looked_s = loop.time()
            self._keep(loop.create_task(self._refresh()))

    async def _refresh(self) -> None:
        try:
            await self._upstream.refresh([])
        except UpstreamError:
            return  # Its own failures tell of that.
