"""Names of cipher suites: those of TLS, which Kafka's settings have, and OpenSSL's."""

import re
import ssl
from collections.abc import Collection, Sequence
from typing import Final

from muster.coordinator.config.tls import BadCertificate

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
            raise BadCertificate(f"ssl.cipher.suites: {name!r} is no suite that is known here; leave it out")
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
