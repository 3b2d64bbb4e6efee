"""What a listener that asyncio serves is given where it speaks TLS. Nothing is imported for those that do not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muster.coordinator.security.identity import Identity

if TYPE_CHECKING:
    from ssl import SSLContext, SSLObject

CERTIFICATE: Final = "muster.certificate"
"""Among the extensions of an HTTP request: the certificate that its connection was begun with, as DER."""


@dataclass(frozen=True, slots=True)
class Tls:
    """One listener's."""

    door: str
    context: "SSLContext"
    identity_of: "Callable[[SSLObject | None, str], Identity | None]"
    """Who speaks from an address, after the handshake; None: nobody, and the connection ends."""
    handshake_s: float
    """A handshake is over within so long, or the connection is."""
