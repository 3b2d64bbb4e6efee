"""What a listener that asyncio serves is given where it speaks TLS. Nothing is imported for those that do not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from muster.coordinator.security.identity import Identity

if TYPE_CHECKING:
    from ssl import SSLContext, SSLObject

CERTIFICATE: Final = "muster.certificate"
"""Among the extensions of an HTTP request: the certificate that its connection was begun with, as DER."""


OnName: TypeAlias = "Callable[[SSLObject, str | None], int | None]"
"""Given a handshake and the name that its client asks for, None where it asks for none; a number is an alert of TLS, by
which it is refused."""


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """One listener's."""

    door: str
    context: "SSLContext"
    identity_of: "Callable[[SSLObject | None, str], Identity | None]"
    """Who speaks from an address, after the handshake; None: nobody, and the connection ends."""
    handshake_s: float
    """A handshake is over within so long, or the connection is."""
    on_name: "Callable[[OnName], None]"
    """From now on, and with each certificate, this is told the name that a client asks for."""
    covers: Callable[[str], bool]
    """Whether the certificate that is shown right now is for a host of this name."""
