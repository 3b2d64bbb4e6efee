"""Certificates and keys as gRPC wants them, out of what people have: files, or text in a property."""

import re
from typing import NamedTuple

from muster.client.connection import SecurityConfig
from muster.client.errors import ConfigError

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
