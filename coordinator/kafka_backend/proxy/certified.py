"""A connection through the node whose client has shown it a certificate: it is served here by that name, and comes to
the brokers by credentials that the node has for all such clients (`engine.kafka.proxy.principal`).

Who it is, is settled: SASL is refused here and not passed on, where it would be one more login of those credentials.
Nor may it have a delegation token, with which it would come to the brokers without a certificate, and past the node.
"""

from typing import ClassVar

from muster.coordinator.kafka.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from muster.coordinator.kafka.codec.emitter import Frame
from muster.coordinator.kafka.connections.frames import HEAD
from muster.coordinator.kafka.dispatch import HangUp
from muster.coordinator.kafka_backend.proxy.allowed_apis import TOKENS
from muster.coordinator.kafka_backend.proxy.beginnings import START
from muster.coordinator.kafka_backend.proxy.passage import ProxyConnection


class CertificateProxyConnection(ProxyConnection):
    __slots__ = ()

    untold: ClassVar[frozenset[int]] = TOKENS

    def _begun(self, data: bytes, at: int) -> bool:
        _, key, _, _ = START.unpack_from(data, at)
        if key in TOKENS:
            raise HangUp(f"API {key} is about delegation tokens, which nobody gets who comes by a certificate")
        return super()._begun(data, at)

    def _start(self, frame: Frame) -> None:
        if HEAD.unpack_from(frame)[0] in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            self._serve_here(frame)
        else:
            super()._start(frame)
