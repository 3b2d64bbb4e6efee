"""A client's credentials and trust anchors, read again when their files change.

Certificates and keys come from files or as text in a property, and are handed to gRPC as PEM for the next connection.
A token is sent as `authorization: Bearer` metadata with each call: gRPC's own call credentials are refused on a
plaintext channel. Only clients that use TLS or a token import this module.
"""

import ipaddress
import os
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from muster.client.config import check_token
from muster.client.errors import ConfigError
from muster.client.types import SecurityConfig

if TYPE_CHECKING:
    from grpc.aio import Channel


# Certificates and keys as PEM
# ----------------------------

MAX_PEM_BYTES = 1 << 20
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
CERTIFICATES = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")
PKCS8, ENCRYPTED = "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"
LINE = 64


class ClientTlsMaterial(NamedTuple):
    """What a TLS connection is made of, as PEM; None: nothing is shown, or gRPC's own CAs are trusted."""

    authorities: bytes | None
    chain: bytes | None
    key: bytes | None


def load_tls_material(trust: SecurityConfig) -> ClientTlsMaterial:
    """Read what is in files. Raises ConfigError, which names the property and what was expected."""
    authorities = None
    if trust.ca_file is not None:
        authorities = parse_certificates(_text_of("ssl.truststore.location", trust.ca_file), "ssl.truststore.location")
    elif trust.ca_pem is not None:
        authorities = parse_certificates(trust.ca_pem, "ssl.truststore.certificates")
    if trust.own_file is not None:
        name = "ssl.keystore.location"
        text = _text_of(name, trust.own_file)
        return ClientTlsMaterial(authorities, parse_certificates(text, name), parse_key(text, name, trust.key_password))
    if trust.own_pem is not None and trust.key_pem is not None:
        chain = parse_certificates(trust.own_pem, "ssl.keystore.certificate.chain")
        return ClientTlsMaterial(authorities, chain, parse_key(trust.key_pem, "ssl.keystore.key", trust.key_password))
    return ClientTlsMaterial(authorities, None, None)


def parse_certificates(text: str, name: str) -> bytes:
    blocks = [block for label, block in _blocks(text) if label in CERTIFICATES]
    if not blocks:
        raise ConfigError(f"{name} has no certificate; expected PEM: -----BEGIN CERTIFICATE----- ...")
    return b"".join(blocks)


def parse_key(text: str, name: str, password: str | None) -> bytes:
    """The one key; decrypted, where it is not plain."""
    found = [(label, block) for label, block in _blocks(text) if label.endswith("PRIVATE KEY")]
    if len(found) != 1:
        raise ConfigError(f"{name} has {len(found)} keys; expected one, as PEM: -----BEGIN PRIVATE KEY----- ...")
    label, block = found[0]
    if label != ENCRYPTED:
        return block
    if password is None:
        raise ConfigError(f"the key of {name} is encrypted; set ssl.key.password")
    return _decrypted(block, name, password)


def _decrypted(block: bytes, name: str, password: str) -> bytes:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise ConfigError(
            f"the key of {name} is encrypted, which takes the extra 'security' (pip install 'muster-groups[security]')"
        ) from None
    try:
        key = serialization.load_pem_private_key(block, password.encode())
    except (ValueError, TypeError):
        raise ConfigError(f"the key of {name} does not open; is ssl.key.password the one it has?") from None
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _blocks(text: str) -> list[tuple[str, bytes]]:
    """Each block by its label, written anew: in a property line breaks are spaces, or written out."""
    found = []
    for label, body in _BLOCK.findall(text.replace("\\n", "\n")):
        packed = "".join(body.split())
        lines = [packed[at : at + LINE] for at in range(0, len(packed), LINE)]
        if ":" in packed:  # headers of an old kind of key: as it stands
            lines = body.strip().splitlines()
        block = "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
        found.append((label, block.encode()))
    return found


def _text_of(name: str, path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}={path!r} cannot be read: {error.strerror}; expected a PEM file") from None
    if len(data) > MAX_PEM_BYTES:
        raise ConfigError(f"{name}={path!r} is larger than {MAX_PEM_BYTES} bytes; expected a PEM file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(
            f"{name}={path!r} is not text; expected PEM (a JKS or PKCS12 store has to be converted)"
        ) from None


# Credentials that are read again when files change
# -------------------------------------------------

LOOK_AGAIN_S = 1.0
MAX_TOKEN_FILE_BYTES = 32_768
Shown = tuple[tuple[str, str], ...]
Options = Sequence[tuple[str, Any]]


class WatchedFiles:
    """Whether files are other ones than before: a link that points elsewhere counts (Kubernetes swaps one)."""

    def __init__(self, paths: Sequence[str | None]) -> None:
        self._paths = [path for path in paths if path is not None]
        self._seen = self._state()
        self._next_s = 0.0

    def changed(self, *, now: bool = False) -> bool:
        """Since the last time this was true. Without `now` it looks at most once a second."""
        if not self._paths or (not now and time.monotonic() < self._next_s):
            return False
        self._next_s = time.monotonic() + LOOK_AGAIN_S
        before, self._seen = self._seen, self._state()
        return before != self._seen

    def _state(self) -> list[tuple[int, int, int] | None]:
        return [_state_of(path) for path in self._paths]


class Credentials:
    """Of one client. Raises ConfigError for files that cannot be read when they are first needed."""

    def __init__(self, trust: SecurityConfig) -> None:
        self._trust = trust
        self._token_file = WatchedFiles([trust.token_file])
        self._pem_files = WatchedFiles([trust.ca_file, trust.own_file])
        self._shown: Shown | None = None
        self._material: ClientTlsMaterial | None = None

    def metadata(self) -> Shown | None:
        """What goes with a call."""
        if self._shown is None or self._token_file.changed():
            self._show(first=self._shown is None)
        return self._shown or None

    def another_token(self) -> bool:
        """Whether there is a newer one than was shown: to be asked when it was refused."""
        before = self._shown
        if not self._token_file.changed(now=True):
            return False
        self._show(first=False)
        return self._shown != before

    def renewed(self, *, now: bool = False) -> bool:
        """Whether there are other certificates than those of the channels made so far. What cannot be read is none."""
        if not self._trust.tls or not self._pem_files.changed(now=now):
            return False
        try:
            fresh = load_tls_material(self._trust)
        except ConfigError:
            return False
        before, self._material = self._material, fresh
        return before is not None and before != fresh

    def channel(self, address: str, options: Options) -> "Channel":
        """For asyncio."""
        own = self._allowed(address)
        if own is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, own, options=[*options, *self._named()])

    def blocking_channel(self, address: str, options: Options) -> grpc.Channel:
        """One whose unary calls show the token by themselves."""
        own = self._allowed(address)
        channel = (
            grpc.insecure_channel(address, options=list(options))
            if own is None
            else grpc.secure_channel(address, own, options=[*options, *self._named()])
        )
        return grpc.intercept_channel(channel, _Showing(self))

    def _allowed(self, address: str) -> grpc.ChannelCredentials | None:
        if self._trust.tls:
            if self._material is None:
                self._material = load_tls_material(self._trust)
            authorities, chain, key = self._material
            return grpc.ssl_channel_credentials(authorities, key, chain)
        if not (self._trust.insecure_token or is_local_address(address)):
            raise ConfigError(
                f"a token would go to {address} for everybody on the way to read; set security.protocol=SSL, or "
                "allow.insecure.token=true where something else encrypts what is sent"
            )
        return None

    def _named(self) -> Options:
        name = self._trust.target_name
        return [] if name is None else [("grpc.ssl_target_name_override", name)]

    def _show(self, *, first: bool) -> None:
        """A file that is being written, or is gone for a moment, changes nothing."""
        try:
            token = self._trust.token if self._trust.token_file is None else read_token_file(self._trust.token_file)
        except ConfigError:
            if first:
                raise
            return
        self._shown = () if token is None else (("authorization", f"Bearer {token}"),)


class _Showing(grpc.UnaryUnaryClientInterceptor):
    """Puts the token beside what a call says already."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        shown = self._credentials.metadata()
        if shown is None:
            return continuation(client_call_details, request)
        metadata = (*(client_call_details.metadata or ()), *shown)
        return continuation(_Details(client_call_details, metadata), request)


class _Details(grpc.ClientCallDetails):
    """gRPC's are a named tuple that it does not show."""

    def __init__(self, given: Any, metadata: Shown) -> None:
        self.method, self.timeout, self.metadata = given.method, given.timeout, metadata
        self.credentials, self.wait_for_ready = given.credentials, given.wait_for_ready
        self.compression = given.compression


def read_token_file(path: str) -> str:
    """The token that a file holds. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            return check_token(file.read(MAX_TOKEN_FILE_BYTES).decode())
    except OSError as error:
        raise ConfigError(
            f"token.file={path!r} cannot be read: {error.strerror}; expected a file with a token"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"token.file={path!r} is not text; expected a file with a token") from None
    except ValueError as error:
        raise ConfigError(f"token.file={path!r}: {error}") from None


def is_local_address(address: str) -> bool:
    """Whether what is sent there stays on this machine.

    >>> [is_local_address(at) for at in ("127.0.0.1:9290", "[::1]:9290", "localhost:1", "unix:/x", "10.0.0.1:9290",
    ... "node:9290")]
    [True, True, True, True, False, False]
    """
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
