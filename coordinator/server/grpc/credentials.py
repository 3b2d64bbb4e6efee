"""What gRPC's library shows and asks for in handshakes: asked anew for each, so that certificates change under way."""

from collections.abc import Callable
from typing import Any, Protocol

import grpc


class GrpcTlsMaterial(Protocol):
    """All as PEM."""

    @property
    def chain(self) -> bytes: ...

    @property
    def key(self) -> bytes: ...

    @property
    def trusted(self) -> bytes: ...


def make_server_credentials(current: Callable[[], GrpcTlsMaterial], *, asks: bool) -> grpc.ServerCredentials:
    """`current` is what is shown now, called in threads of gRPC's; `asks`: clients have to show a certificate."""
    told = current()

    def fetch() -> Any:
        nonlocal told
        now = current()
        if now is told:
            return None  # as before
        told = now
        return make_certificate_configuration(now)

    return grpc.dynamic_ssl_server_credentials(
        make_certificate_configuration(told), fetch, require_client_authentication=asks
    )


def make_certificate_configuration(shown: GrpcTlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(shown.key, shown.chain)], root_certificates=shown.trusted or None
    )
