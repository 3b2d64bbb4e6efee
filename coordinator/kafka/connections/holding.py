"""How a connection is held: nothing is read from it for a while, and what is under way is answered."""

import asyncio
from typing import TYPE_CHECKING

from muster.coordinator.kafka.connections.shared import ListenerState

if TYPE_CHECKING:
    from muster.coordinator.kafka.connections.charges import ChargedConnection


class ReadThrottle:
    """A part of `Connection`, which looks at `_payer` and `_held`."""

    __slots__ = ("_held", "_loop", "_payer", "_resting", "_shared", "_transport")

    _transport: asyncio.Transport
    _shared: ListenerState
    _payer: "ChargedConnection | None"
    """None: nothing is charged, nobody looks."""
    _held: bool
    _resting: bool
    _loop: asyncio.AbstractEventLoop

    def charge(self) -> None:
        """Look anew whether requests are charged for: quotas may be set, or gone."""
        charges = self._shared.charges
        if charges is None or self._held:
            return
        if self._payer is None or not charges.quotas.rates:
            self._payer = charges.payer(self)

    def hold(self, wait_s: float) -> None:
        """Read nothing for so long: connections come too fast."""
        self._resting = True
        self._throttle()
        self._loop.call_later(wait_s, self._rested)

    def hold_back(self) -> None:
        """Nothing more is read or begun until `release`."""
        self._held = True
        self._throttle()

    def release(self) -> None:
        self._held = False
        self.charge()
        self._go_on()

    def abort(self) -> None:
        self._transport.abort()

    def fileno(self) -> int:
        return int(self._transport.get_extra_info("socket").fileno())

    def _rest(self) -> None:
        """Others have their turn before more is read: by itself the loop would read on for megabytes."""
        if not self._resting:
            self._resting = True
            self._loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._throttle()

    def _throttle(self) -> None:
        raise NotImplementedError

    def _go_on(self) -> None:
        raise NotImplementedError
