"""An authority for the whole run, and what it signs: certificates are made in the test."""

from functools import cache
from pathlib import Path

from muster.cli.security import certificate_authority
from muster.cli.security.certificate_authority import IssuedCertificate

HOSTS = ("localhost", "127.0.0.1")


@cache
def authority() -> IssuedCertificate:
    return certificate_authority.make_authority("Test CA")


@cache
def stranger() -> IssuedCertificate:
    """Another authority, which nobody believes."""
    return certificate_authority.make_authority("Stranger CA")


def server(days: float = 30, ca: IssuedCertificate | None = None) -> IssuedCertificate:
    """A new certificate for a node."""
    return certificate_authority.issue_server_certificate(ca or authority(), HOSTS, days)


@cache
def client(name: str = "alice") -> IssuedCertificate:
    return certificate_authority.issue_client_certificate(authority(), name, 30)


def write(directory: Path, name: str, data: bytes) -> str:
    """The path of a new file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_bytes(data)
    return str(path)


def secure(directory: Path, **doors: str) -> dict[str, str]:
    """Settings of a node that has a certificate, and believes the authority's clients; `doors`: further settings."""
    given = {
        "ssl.keystore.location": write(directory, "server.pem", server().pem()),
        "ssl.truststore.location": write(directory, "ca.pem", authority().certificate_pem),
    }
    return given | {key.replace("_", "."): value for key, value in doors.items()}
