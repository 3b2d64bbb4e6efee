"""Contexts for handshakes, made of material in memory, and one that stands for whichever is current."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from muster.coordinator.config.tls import BadCertificate, CertificateSettings
from muster.coordinator.edge.tls import OnName
from muster.coordinator.server.security.material import CertificateMaterial
from muster.coordinator.server.security.suites import openssl_suites

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
        """See `Tls.on_name`."""
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
