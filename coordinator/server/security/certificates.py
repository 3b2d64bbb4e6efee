"""Who a client's certificate says it is. It was checked in the handshake; here it is only read."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from muster.coordinator.config.mapping_rules import PrincipalMappingRule, map_subject
from muster.coordinator.security.distinguished_names import format_rfc2253
from muster.coordinator.security.identity import USER, Identity, Principal

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
    """The subject of a certificate, PEM or DER, as Java's `X500Principal.getName()` has it. Raises NotNamed."""
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
        """Of a certificate, PEM or DER. Raises NotNamed."""
        known = self._known.get(certificate)
        if known is None:
            known = self._known[certificate] = Principal(USER, self._name(subject_of(certificate)))
            if len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        return known

    def identity_of(self, certificate: bytes, host: str) -> Identity:
        """Who speaks from `host`. Raises NotNamed."""
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
