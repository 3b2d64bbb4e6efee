"""The certificates of a node's listeners: read, checked, shown in handshakes, loaded again when their files change.

Material is read from files or settings as PEM and checked before any client sees it; the key is held in the clear and
never leaves the process. Every problem is a BadCertificate that says which, where it lies, why, and what to do.
Suites are named as in TLS, as Kafka's settings do, and mapped to OpenSSL's names.

asyncio and uvloop ask a context for nothing but handshakes, so `CurrentTlsContext` stands for whichever context is
current. After the handshake a client's certificate becomes a principal by the listener's mapping rules (KIP-371); it
was checked there, and is only read here. While the end of a certificate is near, or past, the node has a condition.

Imported only where a listener speaks TLS.
"""

import asyncio
import os
import re
import ssl
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.config.tls import (
    LISTENER_NAMES,
    REPLICATION,
    BadCertificate,
    CertificateSettings,
    PrincipalMappingRule,
    map_subject,
)
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.edge.listener_base import ListenerTls, OnName
from muster.coordinator.edge.overload import LogThrottle
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.security.access_model import ANONYMOUS, USER, Identity, Principal
from muster.coordinator.security.distinguished_names import format_rfc2253

if TYPE_CHECKING:
    from ssl import SSLContext, SSLObject

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes


# Material
# --------

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


# Cipher suites
# -------------

TLS13: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""What OpenSSL offers with TLS 1.3: by Python none of them can be left out."""

NAMED: Final = re.compile(r"TLS_(?P<exchange>ECDHE|DHE)_(?P<signature>RSA|ECDSA)_WITH_(?P<cipher>[A-Z0-9_]+)")
CIPHERS: Final = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
}


def openssl_suites(names: Sequence[str], versions: Collection[str]) -> list[str] | None:
    """Of TLS 1.2, by OpenSSL's names; None where nothing is named. Raises BadCertificate.

    >>> openssl_suites(["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"], ["TLSv1.2"])
    ['ECDHE-RSA-AES256-GCM-SHA384']
    """
    if not names:
        return None
    if "TLSv1.3" in versions and not set(names) >= TLS13:
        raise BadCertificate(
            f"ssl.cipher.suites is {','.join(names)}, but TLSv1.3 is enabled, which always offers "
            f"{', '.join(sorted(TLS13))} here; add all three, or set ssl.enabled.protocols=TLSv1.2"
        )
    older = [openssl_name(name) for name in names if name not in TLS13]
    if not older and "TLSv1.3" not in versions:
        raise BadCertificate(
            f"ssl.cipher.suites is {','.join(names)}, none of which TLSv1.2 knows; name one that it has"
        )
    for name in older:
        if not is_one_suite(name):
            raise BadCertificate(f"ssl.cipher.suites: {name!r} is not a suite that is known here; leave it out")
    return older


def is_one_suite(name: str) -> bool:
    """Whether OpenSSL has it by this very name: a word such as ALL is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.set_ciphers(name)
    except ssl.SSLError:
        return False
    return any(each["name"] == name for each in context.get_ciphers())


def openssl_name(name: str) -> str:
    """As OpenSSL calls it; a name of another shape is taken for OpenSSL's own.

    >>> openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"), openssl_name("DHE-RSA-AES128-GCM-SHA256")
    ('ECDHE-ECDSA-CHACHA20-POLY1305', 'DHE-RSA-AES128-GCM-SHA256')
    """
    found = NAMED.fullmatch(name)
    if found is None or found["cipher"] not in CIPHERS:
        return name
    return f"{found['exchange']}-{found['signature']}-{CIPHERS[found['cipher']]}"


# Contexts for handshakes
# -----------------------

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
ASKS: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def make_listener_context(material: CertificateMaterial, given: CertificateSettings) -> ssl.SSLContext:
    """What one listener shows and asks for. Raises BadCertificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_mode = ASKS[given.ssl_client_auth]
    return configure_context(context, material, given)


def make_client_context(material: CertificateMaterial, given: CertificateSettings) -> ssl.SSLContext:
    """What a node shows another one that it calls, which has to be who it says: of the same authority, and by the name
    of its host. Raises BadCertificate."""
    return configure_context(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), material, given)


def configure_context(
    context: ssl.SSLContext, material: CertificateMaterial, given: CertificateSettings
) -> ssl.SSLContext:
    """With versions, suites, and what is shown and believed. Raises BadCertificate."""
    chosen = sorted(VERSIONS[each] for each in given.tls_versions)
    suites = openssl_suites(given.cipher_suites, given.tls_versions)
    context.minimum_version = chosen[0] if suites is None or suites else ssl.TLSVersion.TLSv1_3
    context.maximum_version = chosen[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        if suites:
            context.set_ciphers(":".join(suites))
        with open_as_file(material.chain + material.key) as path:
            context.load_cert_chain(path)
        if material.trusted:
            context.load_verify_locations(cadata=material.trusted.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise BadCertificate(f"the certificate of {material.subject} cannot be used: {error}") from error
    return context


class CurrentTlsContext(ssl.SSLContext):
    """Begins each handshake with the context that is current then: asyncio and uvloop ask it for nothing else."""

    _now: ssl.SSLContext

    def __new__(cls, first: ssl.SSLContext) -> "CurrentTlsContext":
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, first: ssl.SSLContext) -> None:
        self._now = first

    def replace(self, context: ssl.SSLContext) -> None:
        """For handshakes that begin from now on; connections that stand are left alone."""
        context.sni_callback = self._now.sni_callback
        self._now = context

    def on_name(self, told: OnName) -> None:
        """See `ListenerTls.on_name`."""
        self._now.sni_callback = lambda handshake, name, _: told(handshake, name)

    def wrap_bio(self, *args: Any, **more: Any) -> ssl.SSLObject:
        """See `ssl.SSLContext.wrap_bio`."""
        return self._now.wrap_bio(*args, **more)


@contextmanager
def open_as_file(data: bytes) -> Iterator[str]:
    """A path that only this process can open, for as long as it is needed: OpenSSL takes keys from files only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("muster", os.MFD_CLOEXEC)
        try:
            write_all(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # of mode 0600
        file.write(data)
        file.flush()
        yield file.name


def write_all(descriptor: int, data: bytes) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)


# Who a certificate names
# -----------------------

MECHANISM: Final = "mTLS"
PEM: Final = b"-----BEGIN CERTIFICATE-----"
MOST_KEPT: Final = 1_024
"""Certificates whose names are kept."""

MOST_CHARACTERS: Final = 1_024
"""Of a name: a subject of certificates as they are has a hundred or two."""

MOST_TOLD: Final = 200


class UnmappedCertificate(ValueError):
    """By the rules of the node the certificate is nobody's; the text says why. The connection ends."""


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate, PEM or DER, as Java's `X500Principal.getName()` has it. Raises
    UnmappedCertificate."""
    from cryptography import x509

    try:
        read = x509.load_pem_x509_certificate if certificate.startswith(PEM) else x509.load_der_x509_certificate
        return format_rfc2253(read(certificate).subject.public_bytes())
    except ValueError as error:
        raise UnmappedCertificate(f"the client's certificate cannot be read: {error}") from error


class CertificatePrincipals:
    """Principals by certificate, of one set of rules (`ssl.principal.mapping.rules`)."""

    def __init__(self, text: str, rules: Sequence[PrincipalMappingRule]) -> None:
        self._text = text
        self._rules = rules
        self._known: OrderedDict[bytes, Principal] = OrderedDict()

    def principal_of(self, certificate: bytes) -> Principal:
        """Of a certificate, PEM or DER. Raises UnmappedCertificate."""
        known = self._known.get(certificate)
        if known is None:
            known = self._known[certificate] = Principal(USER, self._name(subject_of(certificate)))
            if len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        return known

    def identity_of(self, certificate: bytes, host: str) -> Identity:
        """Who speaks from `host`. Raises UnmappedCertificate."""
        return Identity(self.principal_of(certificate), host, MECHANISM)

    def _name(self, subject: str) -> str:
        name = map_subject(subject, self._rules)
        if name is None:
            rules = f"ssl.principal.mapping.rules, {self._text},"
            raise UnmappedCertificate(f"no rule of {rules} matches the subject {subject[:MOST_TOLD]!r}")
        if not name or not name.isprintable() or len(name) > MOST_CHARACTERS:
            raise UnmappedCertificate(
                f"the subject {subject[:MOST_TOLD]!r} makes no name; expected printable text of at most "
                f"{MOST_CHARACTERS} characters"
            )
        return name


# Certificates of listeners
# -------------------------

LOOK_S: Final = 1.0
"""How often the files are looked at."""

SOON_S: Final = 14 * 86_400
"""A certificate that ends within so long is told."""

TELL_EVERY_S: Final = 10.0
"""Of certificates that are nobody's, one from an address in so many seconds is told."""

log = structlog.get_logger("muster.tls")


class ListenerCertificates:
    """Of one listener: what its next handshakes show and believe."""

    def __init__(
        self,
        door: str,
        given: CertificateSettings,
        wall_s: Callable[[], float],
        handshake_s: float,
        *,
        by_login: bool,
    ) -> None:
        """`by_login`: who speaks is told by a login, whatever certificate is shown."""
        self.door = door
        self.given = given
        self._wall_s = wall_s
        self._handshake_s = handshake_s
        self._by_login = by_login
        self._told = LogThrottle(TELL_EVERY_S)
        self._seen = stamp_certificate_files(given)
        self.material, context = self._made()
        self.context = CurrentTlsContext(context)
        self.names = CertificatePrincipals(given.ssl_principal_mapping_rules, given.mapping_rules)

    def changed(self) -> bool:
        """Whether the files are others than when they were last read. Blocks for some calls of the system."""
        return stamp_certificate_files(self.given) != self._seen

    def reload(self) -> None:
        """For handshakes that begin from now on. Blocks. Raises BadCertificate, and all stays as it was."""
        seen = stamp_certificate_files(self.given)
        try:
            material, context = self._made()
        finally:
            self._seen = seen  # What cannot be used is not read again before it changes.
        self.material = material
        self.context.replace(context)

    def tls(self) -> ListenerTls:
        """For a listener that asyncio serves."""
        return ListenerTls(
            self.door, self.context, self.identity_of, self._handshake_s, self.context.on_name, self.covers
        )

    def covers(self, name: str) -> bool:
        """Whether clients that check names take the certificate for a host of this one."""
        return covers_host(name, self.material.hosts)

    def calling(self) -> "SSLContext":
        """For the next connection to another node, with the same certificate as is shown here. Raises
        BadCertificate."""
        return make_client_context(self.material, self.given)

    def identity_of(self, handshake: "SSLObject | None", host: str) -> Identity | None:
        """Who speaks on a connection, after its handshake; None, and a line in the log, where the rules name nobody."""
        certificate = None if handshake is None else handshake.getpeercert(binary_form=True)
        if certificate is None or self._by_login:
            return Identity(ANONYMOUS, host)
        try:
            return self.names.identity_of(certificate, host)
        except UnmappedCertificate as error:
            untold = self._told.count_suppressed(host, time.monotonic())
            if untold is not None:
                log.warning("no TLS connection", door=self.door, peer=host, why=str(error), untold=untold)
            return None

    def _made(self) -> "tuple[CertificateMaterial, SSLContext]":
        try:
            material = load_material(self.given, self._wall_s())
            if self.door == REPLICATION:
                check_client_use(material)
            return material, make_listener_context(material, self.given)
        except BadCertificate as error:
            raise BadCertificate(f"{LISTENER_NAMES[self.door]} speaks TLS: {error}") from error


class NodeCertificates:
    """Of all listeners of a node that speak TLS."""

    def __init__(self, settings: Settings, *, wall_s: Callable[[], float] = time.time) -> None:
        """Reads all of them. Blocks. Raises BadCertificate."""
        self._wall_s = wall_s
        self._of = {
            name: ListenerCertificates(
                name,
                settings.certificates_of(name),
                wall_s,
                settings.connection_setup_timeout_ms / 1000,
                by_login=door.asks_by_sasl,
            )
            for name, door in settings.listener_addresses.items()
            if door.encrypted
        }
        self._looking: RestartedTask | None = None

    def of(self, door: str) -> ListenerCertificates | None:
        return self._of.get(door)

    def principal_of(self, certificate: bytes, door: str) -> Principal:
        """Whose certificate (PEM or DER) a door was shown. Raises UnmappedCertificate."""
        return self._of[door].names.principal_of(certificate)

    def expiries(self) -> Mapping[str, float]:
        """Per listener, when what it shows ends, by the clock of the wall."""
        return {LISTENER_NAMES[name]: each.material.expires_s for name, each in self._of.items()}

    def start(self, conditions: Conditions) -> None:
        """From now on look after them, on this loop."""
        self._looking = RestartedTask("certificates", partial(self._look_after, conditions))
        self._looking.start()

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look_after(self, conditions: Conditions) -> None:
        while True:
            await self.renew_certificates(conditions)
            await asyncio.sleep(LOOK_S)

    async def renew_certificates(self, conditions: Conditions) -> None:
        """Read what has changed, and say of each listener what is wrong with its certificate."""
        for name, each in self._of.items():
            await self._renew(name, each, conditions)
            update_expiry_condition(conditions, name, each.material, self._wall_s())

    async def _renew(self, name: str, each: ListenerCertificates, conditions: Conditions) -> None:
        condition = f"certificate-not-read:{name}"
        try:
            if not await asyncio.to_thread(each.changed):
                return
            await asyncio.to_thread(each.reload)
        except BadCertificate as error:
            conditions.report(
                condition,
                f"{error}; the certificate of before ({each.material.subject}) is shown until the file is mended",
            )
        except Exception as error:  # whatever it was: the files must be looked at again
            log.error("certificates could not be checked", door=name, exc_info=error)
        else:
            conditions.clear(condition)
            log.info(
                "certificates read", door=name, subject=each.material.subject, ends=format_day(each.material.expires_s)
            )


def update_expiry_condition(conditions: Conditions, name: str, material: CertificateMaterial, now_s: float) -> None:
    """While it is near, or past: each once."""
    near, past = f"certificate-ends:{name}", f"certificate-ended:{name}"
    shown = f"the certificate that {LISTENER_NAMES[name]} shows ({material.subject})"
    cure = "put a new one in its file, no restart is needed"
    told = {}
    if material.expires_s <= now_s:
        told[past] = f"{shown} ended {format_day(material.expires_s)}, and clients refuse to connect; {cure}"
    elif material.expires_s - now_s <= SOON_S:
        told[near] = f"{shown} ends {format_day(material.expires_s)}; {cure}"
    for condition in (near, past):
        if condition not in told:
            conditions.clear(condition)
        elif conditions.sentence(condition) != told[condition]:
            conditions.report(condition, told[condition])


def stamp_certificate_files(given: CertificateSettings) -> tuple[object, ...]:
    """What tells of each file whether it is another, or was written again: also behind links (Kubernetes swaps one)."""
    return tuple(stamp_path(path) for path in given.certificate_files)


def stamp_path(path: str) -> object:
    try:
        real = os.path.realpath(path)
        told = os.stat(real)
    except OSError as error:
        return error.errno
    return real, told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns


def format_day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_s))
