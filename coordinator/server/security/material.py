"""What a listener shows and believes: read from files or settings, and checked before anybody is shown it."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from muster.coordinator.config.tls import BadCertificate, CertificateSettings

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

EXTRA: Final = "pip install 'muster-groups[security]'"
BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.S)
MOST_BYTES: Final = 4 << 20
"""Of one file. A bundle with all public authorities has a quarter of a megabyte."""


@dataclass(frozen=True, slots=True)
class CertificateMaterial:
    """All that a handshake of one listener needs, as PEM, the key in the clear: it never leaves the process."""

    chain: bytes
    key: bytes
    trusted: bytes
    """Authorities for clients' certificates; empty: nobody is asked for one."""
    expires_s: float
    """When the first certificate of the chain ends, by the clock of the wall."""
    subject: str
    hosts: tuple[str, ...] = ()
    """The names that the first certificate is for, as it has them: `*` may stand for the first part of one."""

    def __repr__(self) -> str:
        return f"Material({self.subject!r}, expires_s={self.expires_s})"


def load_material(given: CertificateSettings, now_s: float) -> CertificateMaterial:
    """Read what the settings name. Blocks. Raises BadCertificate."""
    where = given.ssl_keystore_location or "ssl.keystore.certificate.chain"
    key_where = given.ssl_keystore_location or "ssl.keystore.key"
    if given.ssl_keystore_location:
        shown = keys = read_file(given.ssl_keystore_location, "ssl.keystore.location")
    else:
        shown = given.ssl_keystore_certificate_chain.encode()
        keys = given.ssl_keystore_key.get_secret_value().encode()
    chain = parse_certificates(shown, where)
    key = parse_private_key(keys, key_where, given.ssl_key_password.get_secret_value())
    check_pair(chain, key, where, now_s)
    trusted = load_trusted(given)
    ends_s = min(each.not_valid_after_utc.timestamp() for each in chain)
    return CertificateMaterial(
        b"".join(map(pem_of, chain)), key_pem(key), trusted, ends_s, subject(chain[0]), hosts_of(chain[0])
    )


def load_trusted(given: CertificateSettings) -> bytes:
    """The authorities, if clients are asked for certificates. One that has ended believes nobody, and harms nobody."""
    if given.ssl_client_auth == "none":
        return b""
    where = given.ssl_truststore_location or "ssl.truststore.certificates"
    if given.ssl_truststore_location:
        data = read_file(given.ssl_truststore_location, "ssl.truststore.location")
    else:
        data = given.ssl_truststore_certificates.encode()
    return b"".join(map(pem_of, parse_certificates(data, where)))


def read_file(path: str, setting: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadCertificate(
            f"{setting} is {path}, which cannot be read: {error.strerror}; expected a PEM file that the node may read"
        ) from error
    if len(data) > MOST_BYTES:
        raise BadCertificate(f"{setting} is {path}, which is larger than {MOST_BYTES} bytes; expected a PEM file")
    return data


def parse_certificates(data: bytes, where: str) -> "list[x509.Certificate]":
    """At least one, in their order."""
    x509 = import_cryptography()
    found = []
    for kind, block in split_pem_blocks(data):
        if kind.endswith(b"CERTIFICATE"):
            try:
                found.append(x509.load_pem_x509_certificate(block))
            except ValueError as error:
                raise BadCertificate(
                    f"{where}: certificate {len(found) + 1} is damaged ({error}); write it anew"
                ) from error
    if not found:
        raise BadCertificate(
            f"{where}: there is no certificate; expected PEM, beginning with -----BEGIN CERTIFICATE-----"
        )
    return found


def parse_private_key(data: bytes, where: str, password: str) -> "PrivateKeyTypes":
    """The one private key."""
    import_cryptography()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = [(kind, block) for kind, block in split_pem_blocks(data) if kind.endswith(b"PRIVATE KEY")]
    if len(found) != 1:
        raise BadCertificate(
            f"{where}: there are {len(found)} private keys; expected one in PKCS #8 (-----BEGIN PRIVATE KEY----- or "
            "-----BEGIN ENCRYPTED PRIVATE KEY-----)"
        )
    block = found[0][1]
    locked = b"ENCRYPTED" in block[:200]
    if locked and not password:
        raise BadCertificate(f"{where}: the private key is encrypted; set ssl.key.password")
    try:
        return load_pem_private_key(block, password.encode() if locked else None)
    except ValueError as error:
        if locked:
            why = f"{where}: the private key cannot be decrypted; is ssl.key.password the right one?"
        else:
            why = f"{where}: the private key is damaged; write it anew"
        raise BadCertificate(why) from error
    except Exception as error:  # a kind of key, or of encryption, that the library does not know
        raise BadCertificate(f"{where}: the private key is of a kind that is not known: {error}") from error


def check_pair(chain: "list[x509.Certificate]", key: "PrivateKeyTypes", where: str, now_s: float) -> None:
    """Whether the key is the first certificate's, and that one counts today."""
    first, now = chain[0], datetime.fromtimestamp(now_s, UTC)
    if public_bytes(first.public_key()) != public_bytes(key.public_key()):
        raise BadCertificate(
            f"{where}: the private key is not that of the first certificate, {subject(first)}; the node's own "
            "certificate stands first, those of its authorities behind it"
        )
    if first.not_valid_after_utc <= now:
        raise BadCertificate(
            f"{where}: the certificate of {subject(first)} ended {first.not_valid_after_utc}; renew it"
        )
    if first.not_valid_before_utc > now:
        raise BadCertificate(
            f"{where}: the certificate of {subject(first)} begins {first.not_valid_before_utc}; is the clock right?"
        )


def check_client_use(material: CertificateMaterial) -> None:
    """Whether a node may call others with what it shows them: without a list of uses a certificate is for all."""
    x509 = import_cryptography()
    from cryptography.x509.oid import ExtendedKeyUsageOID

    first = x509.load_pem_x509_certificates(material.chain)[0]
    try:
        uses = set(first.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return
    if not uses & {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}:
        raise BadCertificate(
            f"the certificate of {material.subject} is for servers only (its extended key usage), but nodes call each "
            "other with it; expected one for servers and clients (serverAuth, clientAuth)"
        )


def split_pem_blocks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kind and text of each PEM block; spaces may stand for the ends of lines, as in one line of a properties file."""
    return [(found[1], restore_line_ends(found)) for found in BLOCK.finditer(data)]


def restore_line_ends(found: re.Match[bytes]) -> bytes:
    body = found[2].replace(b"\\n", b"\n").strip()
    if b"\n" not in body and b":" not in body:
        body = b"\n".join(body.split())
    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (found[1], body, found[1])


def public_bytes(key: object) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    written: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return written


def pem_of(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def key_pem(key: "PrivateKeyTypes") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def subject(certificate: "x509.Certificate") -> str:
    return certificate.subject.rfc4514_string() or f"serial number {certificate.serial_number:x}"


def hosts_of(certificate: "x509.Certificate") -> tuple[str, ...]:
    """Of its alternative names: clients look at no other ones."""
    x509 = import_cryptography()
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(found.get_values_for_type(x509.DNSName))


def covers_host(name: str, hosts: tuple[str, ...]) -> bool:
    """Whether a certificate for these hosts is for one of this name, as RFC 6125 has it.

    >>> covers_host("Broker-1.shop.example", ("*.shop.example",)), covers_host("a.b.shop.example", ("*.shop.example",))
    (True, False)
    """
    asked = name.lower().rstrip(".")
    behind = asked.partition(".")[2]
    return any(host.lower() == asked or (behind and host.lower() == f"*.{behind}") for host in hosts)


def import_cryptography() -> ModuleType:
    """The module, or a sentence that says how it is had."""
    try:
        from cryptography import x509
    except ImportError as error:
        raise BadCertificate(f"TLS needs the package cryptography; {EXTRA}") from error
    return x509
