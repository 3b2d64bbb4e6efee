"""`muster certs init` makes an authority and certificates for development, `muster certs show` says what one holds."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import FORMATS
from muster.cli.common.output import Row, columns, print_rows

if TYPE_CHECKING:
    from cryptography import x509

    from muster.cli.security.certificate_authority import IssuedCertificate

EXTRA = "pip install 'muster-groups[security]'"
MOST_BYTES = 4 << 20
COLUMNS = columns("SUBJECT:cyan, ISSUER+, HOSTS, BEGINS+, ENDS, AUTHORITY, SHA-256=sha256+")


@click.group()
def certs() -> None:
    """Create and inspect certificates for TLS."""


@certs.command("init")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option(
    "--hosts",
    default="localhost,127.0.0.1,::1",
    show_default=True,
    metavar="A,B",
    help="Names and addresses that clients use to reach the node.",
)
@click.option(
    "--clients",
    default="admin",
    show_default=True,
    metavar="A,B",
    help="Names of clients that get a certificate: User:CN=A, ...",
)
@click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Validity of the certificates in days."
)
@click.option(
    "--authority",
    "home",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory of the authority's ca.key, which is created if missing; DIR by default.",
)
@click.option("--if-missing", is_flag=True, help="Succeed without a change if all files exist.")
def init(directory: Path, hosts: str, clients: str, days: int, home: Path | None, if_missing: bool) -> None:
    """Create a certificate authority, and sign certificates for nodes and clients.

    For development and closed networks: anybody who has ca.key can impersonate anybody. Files with a key are readable
    by their owner only (0600). Existing files are never overwritten.
    """
    try:
        from muster.cli.security import certificate_authority
    except ImportError as error:
        raise CommandError("certificates are made with the package cryptography", remedy=EXTRA) from error
    called, names, home = split_names(hosts, "--hosts"), split_names(clients, "--clients"), home or directory
    if taken := {"ca", "server"} & set(names) or {name for name in names if "/" in name or name.startswith(".")}:
        raise click.UsageError(f"--clients has {sorted(taken)[0]!r}, which cannot be the name of a client's file here")
    wanted = [directory / f"{name}.pem" for name in ("server", *names)]
    present = [path for path in wanted if path.exists()]
    if if_missing and present == wanted and (directory / "ca.pem").exists():
        return
    if present:
        raise CommandError(f"{present[0]} is there already", remedy="name another directory", code=Exit.CONFLICT)
    try:
        authority = load_authority(home) or certificate_authority.make_authority()
        files = {
            home / "ca.pem": authority.certificate_pem,
            home / "ca.key": authority.key_pem(),
            directory / "ca.pem": authority.certificate_pem,
            directory / "server.pem": certificate_authority.issue_server_certificate(authority, called, days).pem(),
        } | {
            directory / f"{name}.pem": certificate_authority.issue_client_certificate(authority, name, days).pem()
            for name in names
        }
    except ValueError as error:
        raise CommandError(f"no certificate can be made: {error}", code=Exit.USAGE) from error
    write_files(files)
    for line in configuration_advice(directory.absolute(), names):
        click.echo(line)


def load_authority(home: Path) -> "IssuedCertificate | None":
    """The one that is kept there, if one is. Raises ValueError, OSError."""
    from muster.cli.security import certificate_authority

    certificate, key = home / "ca.pem", home / "ca.key"
    if not key.exists() or not certificate.exists():
        return None
    return certificate_authority.read_authority(certificate.read_bytes(), key.read_bytes())


def write_files(files: Mapping[Path, bytes]) -> None:
    """All that are not there as they should be. Raises CommandError before anything is written over."""
    from muster.cli.security import certificate_authority

    missing = {path: data for path, data in files.items() if not path.exists()}
    for path, data in files.items():
        if path not in missing and path.read_bytes() != data:
            raise CommandError(f"{path} is there already", remedy="name another directory", code=Exit.CONFLICT)
    for path, data in missing.items():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        certificate_authority.write_new(path, data, 0o644 if path.name == "ca.pem" else 0o600)


def configuration_advice(directory: Path, clients: list[str]) -> Iterator[str]:
    """What to write into which file, so that it can be copied."""
    yield f"# a node's properties ({', '.join(clients)}: clients that show their certificates)"
    yield "listeners=SSL://127.0.0.1:9290"
    yield f"ssl.keystore.location={directory / 'server.pem'}"
    yield f"ssl.truststore.location={directory / 'ca.pem'}"
    yield "ssl.client.auth=required"
    yield "authorizer=acl"
    yield f"super.users=User:CN={clients[0]}"
    yield ""
    yield "# a client's properties"
    yield "security.protocol=SSL"
    yield f"ssl.truststore.location={directory / 'ca.pem'}"
    yield f"ssl.keystore.location={directory / f'{clients[0]}.pem'}"


@certs.command("show")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE")
@click.option(
    "-o", "--output", "style", type=click.Choice(FORMATS), default="table", show_default=True, help="Output format."
)
def print_certificates(file: Path, style: str) -> None:
    """Show each certificate in a PEM file.

    A private key in the file is ignored.
    """
    try:
        from cryptography import x509
    except ImportError as error:
        raise CommandError("certificates are read with the package cryptography", remedy=EXTRA) from error
    with file.open("rb") as opened:
        data = opened.read(MOST_BYTES)
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise CommandError(
            f"{file} holds no certificate", "expected PEM", "see whether it is the right file"
        ) from error
    print_rows([certificate_row(each) for each in found], COLUMNS, style)


def certificate_row(certificate: "x509.Certificate") -> Row:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    from muster.coordinator.security.distinguished_names import format_rfc2253

    def extension(kind: "type[x509.ExtensionType]") -> "x509.ExtensionType | None":
        try:
            return certificate.extensions.get_extension_for_class(kind).value
        except x509.ExtensionNotFound:
            return None

    hosts, basic = extension(x509.SubjectAlternativeName), extension(x509.BasicConstraints)
    return {
        "subject": format_rfc2253(certificate.subject.public_bytes()),
        "issuer": format_rfc2253(certificate.issuer.public_bytes()),
        "hosts": ", ".join(str(each.value) for each in hosts) if isinstance(hosts, x509.SubjectAlternativeName) else "",
        "begins": f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M:%S}",
        "ends": f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S}",
        "authority": isinstance(basic, x509.BasicConstraints) and basic.ca,
        "sha256": certificate.fingerprint(SHA256()).hex(),
    }


def split_names(text: str, option: str) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found or len(set(found)) < len(found):
        raise click.UsageError(f"{option} is {text!r}; expected one name or more, by commas, each once")
    return found
