"""A CA of the test's own, and a server that wants TLS, a certificate or a token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from muster.client.calls.methods import METADATA
from muster.storage.rpc.v1 import broker_service_pb2 as pb

PASSWORD = "opens-the-key"


@dataclass(frozen=True)
class Signed:
    """A certificate with its key, as PEM."""

    chain: str
    key: str

    @property
    def both(self) -> str:
        return self.chain + self.key

    def encrypted_key(self) -> str:
        key = serialization.load_pem_private_key(self.key.encode(), None)
        how = serialization.BestAvailableEncryption(PASSWORD.encode())
        return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how).decode()


class Authority:
    """Signs certificates for names, valid for `days` from now; negative: they are over already."""

    def __init__(self, name: str = "test CA") -> None:
        self._name = named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.pem = pem(self._certificate(self._name, self._key, 1, None))

    def sign(self, name: str, *hosts: str, days: float = 1) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(named(name), key, days, hosts or ("localhost",))
        plain = serialization.NoEncryption()
        text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()
        return Signed(pem(certificate), text)

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: float, hosts: tuple[str, ...] | None
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=9))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=hosts is None, path_length=None), critical=True)
        )
        if hosts is not None:
            names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


@dataclass
class Secured(grpc.GenericRpcHandler):
    """Answers Metadata calls that show a good token (None: any will do); `shown` is what was shown, call by call."""

    tokens: set[str] | None = None
    forbids: str = ""
    only_groups: bool = False
    port: int = 0
    shown: list[str | None] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Every other call than Metadata's is refused, with a token or without."""
        known = details.method == METADATA.path

        async def answer(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            token = dict(context.invocation_metadata() or ()).get("authorization")
            self.shown.append(token)
            if self.tokens is not None and token not in {f"Bearer {each}" for each in self.tokens}:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token is needed")
            if not known and not self.forbids:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token has ended")
            if self.forbids and not (known and self.only_groups):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, self.forbids)
            answered = pb.MetadataResponse()
            answered.topics.add(name="orders").partitions.add()
            return answered

        return grpc.unary_unary_rpc_method_handler(answer, None, pb.MetadataResponse.SerializeToString)


@asynccontextmanager
async def secured(own: Signed | None, clients: str | None = None, port: int = 0, **how: Any) -> AsyncIterator[Secured]:
    """One that runs, on loopback; without `own` it talks plainly. `clients`: the CA whose certificates it wants."""
    serving = Secured(**how)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((serving,))
    if own is None:
        serving.port = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        roots = clients.encode() if clients is not None else None
        pair = [(own.key.encode(), own.chain.encode())]
        shows = grpc.ssl_server_credentials(pair, roots, require_client_auth=clients is not None)
        serving.port = server.add_secure_port(f"127.0.0.1:{port}", shows)
    await server.start()
    try:
        yield serving
    finally:
        await server.stop(0)
