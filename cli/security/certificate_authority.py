"""A private certificate authority and the certificates it signs, for development, tests and private networks.

Needs the extra `security`; `muster certs` imports this module on use.
"""

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key: TypeAlias = EllipticCurvePrivateKey

AUTHORITY_DAYS: Final = 3_650
SLACK: Final = timedelta(minutes=5)
"""Certificates begin so much earlier: clocks differ."""


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, password: str = "") -> bytes:
        """In PKCS #8, encrypted with the password if there is one."""
        how: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)

    def pem(self, password: str = "") -> bytes:
        """Both, as `ssl.keystore.location` has them."""
        return self.certificate_pem + self.key_pem(password)


def make_authority(name: str = "Muster development CA") -> IssuedCertificate:
    """One that signs itself."""
    key, subject = generate_private_key(SECP256R1()), common_name(name)
    built = (
        certificate_builder(subject, subject, key, timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return IssuedCertificate(built.sign(key, SHA256()), key)


def read_authority(certificate: bytes, key: bytes) -> IssuedCertificate:
    """One that was made before. Raises ValueError."""
    read, known = load_pem_private_key(key, None), x509.load_pem_x509_certificate(certificate)
    if not isinstance(read, EllipticCurvePrivateKey) or read.public_key() != known.public_key():
        raise ValueError("ca.key is not the key of ca.pem; expected both from one run of `muster certs init`")
    return IssuedCertificate(known, read)


def issue_server_certificate(ca: IssuedCertificate, hosts: Sequence[str], days: float) -> IssuedCertificate:
    """For a node that is called by these names and addresses, and that calls other nodes."""
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return sign_certificate(ca, common_name(hosts[0]), days, uses, hosts)


def issue_client_certificate(ca: IssuedCertificate, name: str | x509.Name, days: float) -> IssuedCertificate:
    """For `User:CN=name`, or for a whole subject."""
    return sign_certificate(
        ca, common_name(name) if isinstance(name, str) else name, days, [ExtendedKeyUsageOID.CLIENT_AUTH]
    )


def sign_certificate(
    ca: IssuedCertificate,
    subject: x509.Name,
    days: float,
    uses: Sequence[x509.ObjectIdentifier],
    hosts: Sequence[str] = (),
) -> IssuedCertificate:
    key = generate_private_key(SECP256R1())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key())
    built = (
        certificate_builder(subject, ca.certificate.subject, key, timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(issuer, critical=False)
    )
    if hosts:
        built = built.add_extension(x509.SubjectAlternativeName([general_name(host) for host in hosts]), critical=False)
    return IssuedCertificate(built.sign(ca.key, SHA256()), key)


def certificate_builder(subject: x509.Name, issuer: x509.Name, key: Key, lasts: timedelta) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + lasts) - SLACK)
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def key_usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def common_name(name: str) -> x509.Name:
    """Raises ValueError for a name that is empty or longer than 64 characters."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def general_name(host: str) -> x509.GeneralName:
    """
    >>> general_name("::1"), general_name("muster.example")
    (<IPAddress(value=::1)>, <DNSName(value='muster.example')>)
    """
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def write_new(path: Path, data: bytes, mode: int) -> None:
    """A file that was not there, readable by whom `mode` says from its first byte on. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
