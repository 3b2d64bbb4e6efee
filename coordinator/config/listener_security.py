"""Checks settings of listeners, certificates and rights together, so that no listener is open by mistake.

Every check raises ValueError with a sentence that begins with the setting to look at. `find_open_listeners` lists,
for the start line and the doctor, each listener that other machines reach and that is less protected than it could
be.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from pydantic import ValidationError

from muster.coordinator.config.tls import (
    LISTENER_NAME,
    LISTENER_NAMES,
    REPLICATION,
    TLS_VERSIONS,
    CertificateSettings,
    TlsSettings,
)
from muster.coordinator.config.values import ListenerAddress, format_address, is_loopback, parse_connect
from muster.storage.settings_text import describe_allowed

MAKES: Final = "`muster certs init` makes one for development"
INSECURE: Final = "allow.insecure.listeners=true"
OPENS: Final = dict.fromkeys(LISTENER_NAMES, INSECURE) | {"http": f"{INSECURE} (or http.insecure=true for HTTP alone)"}
"""By which word a door may be plaintext where other machines reach it."""


def check_listeners(
    doors: Mapping[str, ListenerAddress], tls: TlsSettings, *, open_by_name: Collection[str] = ()
) -> None:
    """Whether each door has what it needs, and is open to others by name only."""
    check_listener_settings(doors, tls)
    for name, door in doors.items():
        if door.encrypted:
            check_listener_certificates(name, tls.certificates_of(name), tls)
        elif not (is_loopback(door.address.host) or tls.allow_insecure_listeners or name in open_by_name):
            raise ValueError(
                f"{LISTENER_NAMES[name]} is {format_listener(door)} ({door.protocol}), which other machines "
                "reach: what is said there "
                f"is read on the way, and nobody is who they say they are; expected "
                f"{'SASL_SSL' if door.asks_by_sasl else 'SSL'}:// with ssl.keystore.location, a loopback address such "
                f"as 127.0.0.1, or {OPENS[name]} by name"
            )


def find_open_listeners(doors: Mapping[str, ListenerAddress], authorizer: str) -> Iterator[tuple[str, str, str]]:
    """Of each door that other machines reach and that is not shut as it might be: its setting, address, and to whom it
    is open.

    >>> from muster.coordinator.config.values import parse_listener
    >>> door = parse_listener("0.0.0.0:9290")
    >>> [why for _, _, why in find_open_listeners({"grpc": door}, "none")]
    ['who reaches it may do everything, and who is on the way reads and changes what is said']
    """
    for name, door in doors.items():
        if is_loopback(door.address.host) or (door.encrypted and (authorizer != "none" or name == REPLICATION)):
            continue
        reads = "who is on the way reads and changes what is said, passwords and tokens among it"
        if authorizer != "none":
            why = reads
        elif door.encrypted:
            why = "who reaches it may do everything"
        else:
            why = "who reaches it may do everything, and who is on the way reads and changes what is said"
        yield LISTENER_NAMES[name], f"{door.protocol}://{format_listener(door)}", why


def check_listener_settings(doors: Mapping[str, ListenerAddress], tls: TlsSettings) -> None:
    """Whether what is said of one listener is right, and has an effect."""
    for key in tls.listener_name:
        name = key.partition(".")[0]
        if name not in doors or not doors[name].encrypted:
            what = f"{format_listener(doors[name])} ({doors[name].protocol})" if name in doors else "empty"
            raise ValueError(
                f"{LISTENER_NAME}{key} has no effect: {LISTENER_NAMES[name]} is {what}; expected SSL:// there, "
                "or remove this line"
            )
    for name in {key.partition(".")[0] for key in tls.listener_name}:
        try:
            tls.certificates_of(name)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            alias = str(fault["loc"][0])
            field = next(each for each in CertificateSettings.model_fields.values() if each.alias == alias)
            reason = str(fault["msg"]).removeprefix("Value error, ")
            allowed = allowed_values(field.json_schema_extra) or describe_allowed(field)
            raise ValueError(
                f"{LISTENER_NAME}{name}.{alias} is {fault['input']!r}, expected {allowed} ({reason})"
            ) from None
    if tls.ssl_client_auth != "none" and not any(door.encrypted for door in doors.values()):
        raise ValueError(
            f"ssl.client.auth is {tls.ssl_client_auth}, but no listener speaks TLS, so no client would be asked; "
            "expected SSL:// before the address of one, or ssl.client.auth=none"
        )


def check_listener_certificates(name: str, given: CertificateSettings, tls: TlsSettings) -> None:
    """Whether a listener that speaks TLS is told with which certificate, and what it is told can be done."""

    def says(setting: str) -> str:
        key = f"{name}.{setting}"
        return f"{LISTENER_NAME}{key}" if key in tls.listener_name else setting

    inline = bool(given.ssl_keystore_certificate_chain), bool(given.ssl_keystore_key.get_secret_value())
    if given.ssl_keystore_location and any(inline):
        raise ValueError(
            f"{says('ssl.keystore.location')} is {given.ssl_keystore_location}, and a certificate or key is set in "
            f"{says('ssl.keystore.certificate.chain')} or {says('ssl.keystore.key')}; keep either the file or these two"
        )
    if not given.ssl_keystore_location and not all(inline):
        raise ValueError(
            f"{says('ssl.keystore.location')} is empty, but {LISTENER_NAMES[name]} speaks TLS; expected a PEM "
            "file with the "
            "certificate, those between it and the root, and the key, or both ssl.keystore.certificate.chain and "
            f"ssl.keystore.key; {MAKES}"
        )
    if given.ssl_truststore_location and given.ssl_truststore_certificates:
        raise ValueError(
            f"{says('ssl.truststore.location')} is {given.ssl_truststore_location}, and certificates are set in "
            f"{says('ssl.truststore.certificates')}, too; keep one of the two"
        )
    if given.ssl_client_auth != "none" and not (given.ssl_truststore_location or given.ssl_truststore_certificates):
        raise ValueError(
            f"{says('ssl.client.auth')} is {given.ssl_client_auth}, but no authority is set whose certificates would "
            f"be trusted; expected {says('ssl.truststore.location')} with a PEM file, or ssl.client.auth=none"
        )
    if name == REPLICATION and given.ssl_client_auth != "required":
        raise ValueError(
            f"{says('ssl.client.auth')} is {given.ssl_client_auth}, but {LISTENER_NAMES[name]} speaks TLS, where "
            "nodes present certificates to "
            f"each other; set {LISTENER_NAME}{name}.ssl.client.auth=required, and ssl.truststore.location "
            "to the authority of all nodes"
        )
    if name == "grpc":
        check_grpc_tls_settings(
            given, says("ssl.client.auth"), says("ssl.enabled.protocols"), says("ssl.cipher.suites")
        )


def check_grpc_tls_settings(given: CertificateSettings, client_auth: str, versions: str, suites: str) -> None:
    """gRPC's library takes none of these for one port: better refused than left out."""
    if given.ssl_client_auth == "requested":
        raise ValueError(
            f"{client_auth} is requested, but gRPC can ask its clients for a certificate only as required, or not at "
            "all; set listener.name.grpc.ssl.client.auth to required or none"
        )
    if given.tls_versions != set(TLS_VERSIONS):
        raise ValueError(
            f"{versions} is {given.ssl_enabled_protocols}, but gRPC speaks {' and '.join(TLS_VERSIONS)}, which cannot "
            f"be changed; set listener.name.grpc.ssl.enabled.protocols={','.join(TLS_VERSIONS)} if that is acceptable"
        )
    if given.ssl_cipher_suites:
        raise ValueError(
            f"{suites} is {given.ssl_cipher_suites}, but gRPC takes its suites only from the environment variable "
            "GRPC_SSL_CIPHER_SUITES (OpenSSL's names, separated by colons); set them there, and leave "
            "listener.name.grpc.ssl.cipher.suites= empty"
        )


def check_authority(
    doors: Mapping[str, ListenerAddress], tls: TlsSettings, *, authorizer: str, mechanisms: str, zookeeper: str
) -> None:
    """Whether who is asked for a name is asked for a reason, and nobody else decides what he may do."""
    for name, door in doors.items():
        if door.asks_by_sasl and not mechanisms:
            raise ValueError(
                f"{LISTENER_NAMES[name]} is {format_listener(door)} ({door.protocol}), but "
                "sasl.enabled.mechanisms is empty, so no "
                "client could log in; add a mechanism such as SCRAM-SHA-512"
            )
        if authorizer == "none" and door.asks_by_sasl:
            raise ValueError(describe_no_certificate(f"{LISTENER_NAMES[name]} asks who clients are ({door.protocol})"))
        if name == REPLICATION:
            if authorizer != "none" and not door.encrypted:
                raise ValueError(
                    f"{LISTENER_NAMES[name]} is {format_listener(door)} ({door.protocol}), and authorizer is "
                    f"{authorizer}: nodes read "
                    "and change users and ACLs there, and so could anyone who reaches it; expected SSL://, where nodes "
                    "present certificates to each other, and super.users with the names in these"
                )
            continue  # A certificate says there that it is a node; it is asked for no name.
        if authorizer == "none" and door.encrypted and tls.certificates_of(name).ssl_client_auth != "none":
            raise ValueError(
                describe_no_certificate(f"{LISTENER_NAMES[name]} asks clients for certificates (ssl.client.auth)")
            )
    if authorizer == "none" or not zookeeper or tls.allow_insecure_listeners:
        return
    if not all(is_loopback(host) for host, _ in parse_connect(zookeeper).servers):
        raise ValueError(
            f"zookeeper.connect is {zookeeper}, without TLS and credentials, and authorizer is {authorizer}: anyone "
            "who may write there controls groups, whatever the ACLs say; expected a ZooKeeper on this machine, none, "
            f"or an explicit {INSECURE}"
        )


def describe_no_certificate(asked: str) -> str:
    return (
        f"authorizer is none, but {asked}: the names would mean nothing, because every client may do everything; "
        "none is only for nodes without authentication; set authorizer=acl, and super.users"
    )


def format_listener(door: ListenerAddress) -> str:
    return format_address(*door.address)


def allowed_values(extra: object) -> str:
    """What a field's own words say it allows, if it has any."""
    return str(extra.get("allowed", "")) if isinstance(extra, Mapping) else ""
