"""Settings of the proxy in Kafka-backed mode: which groups Muster coordinates, broker ports, and clients' credentials.

A node stands in for each broker at a port or a host name of its own. A client that shows the node a certificate ends
its TLS connection there, so the node logs in to the brokers for it, as a principal with credentials of its own: with
the node's credentials every client could write what the node keeps there. The checks make sure that no client reaches
the brokers as the node by mistake; each raises ValueError with a sentence that begins with the setting to look at.
"""

import re
from pathlib import Path
from typing import Final, Protocol, Self

from pydantic import SecretStr, field_validator, model_validator

from muster.coordinator.config.values import SASL_MECHANISMS, ListenerAddress, format_address
from muster.storage.settings_text import NonNegativeInt32, SettingsModel, setting

# Groups and broker addresses
# ---------------------------

ID: Final = "$(id)"
HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,230}")
MOST_PORTS: Final = 1_000


def parse_ports(text: str) -> range:
    """FIRST-LAST, or one port; empty for nothing. Raises ValueError.

    >>> parse_ports("9100-9131"), parse_ports("9100"), parse_ports("")
    (range(9100, 9132), range(9100, 9101), range(0, 0))
    """
    if not text:
        return range(0)
    first, dash, last = text.partition("-")
    if not all(each.isascii() and each.isdigit() for each in (first, last if dash else first)):
        raise ValueError("FIRST-LAST, such as 9100-9131, or nothing")
    ports = range(int(first), int(last if dash else first) + 1)
    if not 0 < len(ports) <= MOST_PORTS or ports[0] == 0 or ports[-1] > 65_535:
        raise ValueError(f"1 to {MOST_PORTS} ports from 1 to 65535, such as 9100-9131, or nothing")
    return ports


class ProxySettings(SettingsModel):
    engine_kafka_groups: str = setting(
        ".*",
        "The groups that Muster coordinates, by a pattern of their whole ids; all others stay with Kafka.",
        allowed="a regular expression of RE2",
    )
    engine_kafka_groups_except: str = setting(
        "", "The groups among those that stay with Kafka.", allowed="a regular expression of RE2, or nothing"
    )
    engine_kafka_broker_ports: str = setting(
        "",
        "The ports on which the node stands in for the brokers, one for each broker.",
        allowed="FIRST-LAST, or nothing",
    )
    engine_kafka_broker_id_first: NonNegativeInt32 = setting(
        0, "The id of the broker at the first of these ports; the next port has the next id."
    )

    engine_kafka_broker_hosts: str = setting(
        "",
        "The host names by which TLS clients reach the brokers, all on the port of kafka.listeners, instead of ports.",
        allowed=f"a host's name with {ID} in it, or nothing",
    )
    engine_kafka_transactions: bool = setting(
        True, "Whether transactions of clients may include positions of Muster's groups."
    )

    @property
    def broker_ports(self) -> range:
        return parse_ports(self.engine_kafka_broker_ports)

    def broker_host(self, broker: int) -> str:
        """The name by which a client asks for it, where names tell brokers apart."""
        return self.engine_kafka_broker_hosts.replace(ID, str(broker))

    @field_validator("engine_kafka_groups", "engine_kafka_groups_except")
    @classmethod
    def is_an_expression(cls, value: str) -> str:
        import re2  # not before somebody has such an engine

        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(value, options)
        except re2.error:
            raise ValueError("a regular expression of RE2") from None
        return value

    @field_validator("engine_kafka_broker_ports")
    @classmethod
    def are_ports(cls, value: str) -> str:
        parse_ports(value)
        return value

    @field_validator("engine_kafka_broker_hosts")
    @classmethod
    def is_a_pattern(cls, value: str) -> str:
        if value and (value.count(ID) != 1 or not HOST.fullmatch(value.replace(ID, "0"))):
            raise ValueError(f"{ID} stands in it once, the rest is of a name, such as broker-{ID}.muster.example")
        return value

    def check_brokers_can_be_reached(self, door: ListenerAddress | None) -> None:
        """door: where Kafka's clients come. Raises ValueError."""
        ports, hosts = self.engine_kafka_broker_ports, self.engine_kafka_broker_hosts
        if ports and hosts:
            raise ValueError(
                f"engine.kafka.broker.ports is {ports}, and engine.kafka.broker.hosts is {hosts}: brokers are told "
                "apart by ports or by names; leave one of them empty"
            )
        if door is None:
            return
        if hosts and not door.encrypted:
            raise ValueError(
                f"engine.kafka.broker.hosts is {hosts}, but kafka.listeners speaks {door.protocol}: a client tells the "
                "name that it wants in its TLS handshake only; expected SSL://HOST:PORT or SASL_SSL://HOST:PORT, or "
                "engine.kafka.broker.ports instead"
            )
        if not (ports or hosts):
            raise ValueError(
                f"kafka.listeners is {door.address.host}:{door.address.port}, but engine.kafka.broker.ports is empty: "
                "Kafka's clients speak to each broker of it by a port of this node; set engine.kafka.broker.ports to "
                "FIRST-LAST, such as 9100-9131, a port for each broker id from engine.kafka.broker.id.first on, or "
                f"with TLS engine.kafka.broker.hosts to a name such as broker-{ID}.muster.example"
            )

    @model_validator(mode="after")
    def has_room_for_itself(self) -> Self:
        if self.engine_kafka_groups == "":
            raise ValueError("engine.kafka.groups is empty: no group would be Muster's; leave it out for all of them")
        return self


# The principal of clients
# ------------------------

PRINCIPAL: Final = "engine.kafka.proxy.principal"
OAUTHBEARER: Final = "OAUTHBEARER"


class ProxyPrincipalSettings(SettingsModel):
    engine_kafka_proxy_principal: str = setting(
        "",
        "The principal, by Kafka's name, with which the node logs in to the brokers for clients with certificates; "
        "its credentials are the settings that begin with engine.kafka.proxy.",
        name=PRINCIPAL,
        allowed="TYPE:NAME, such as User:apps, or nothing",
    )
    engine_kafka_proxy_sasl_mechanism: str = setting(
        "",
        "The SASL mechanism of this principal; empty means engine.kafka.sasl.mechanism.",
        allowed=f"one of {', '.join(SASL_MECHANISMS)}, or nothing",
    )
    engine_kafka_proxy_sasl_username: str = setting(
        "", "The user name of this principal, unless it uses a token.", allowed="a name, or nothing"
    )
    engine_kafka_proxy_sasl_password: SecretStr = setting(SecretStr(""), "The password of this principal.")
    engine_kafka_proxy_sasl_oauthbearer_token_file: str = setting(
        "",
        "The file with the OAUTHBEARER token of this principal, read again for each connection.",
        allowed="a file, or nothing",
    )
    engine_kafka_proxy_ssl_keystore_location: str = setting(
        "",
        "The certificate and key of this principal, if engine.kafka.security.protocol is SSL.",
        allowed="a PEM file, or nothing",
    )
    engine_kafka_proxy_ssl_key_password: SecretStr = setting(
        SecretStr(""), "The password of that key, if it is encrypted."
    )

    @field_validator("engine_kafka_proxy_principal")
    @classmethod
    def is_a_principal(cls, value: str) -> str:
        kind, colon, name = value.partition(":")
        if value and not (kind and colon and name):
            raise ValueError(
                "clients come to the brokers by credentials of their own, never by those of Muster's nodes"
                if value == "muster"
                else "no TYPE:NAME"
            )
        return value

    @field_validator("engine_kafka_proxy_sasl_mechanism")
    @classmethod
    def is_a_mechanism_of_his(cls, value: str) -> str:
        if value and value not in SASL_MECHANISMS:
            raise ValueError(f"{value!r} is not supported here")
        return value


class ProxyCredentials(Protocol):
    """The settings that are looked at."""

    @property
    def engine_kafka_security_protocol(self) -> str: ...
    @property
    def engine_kafka_sasl_mechanism(self) -> str: ...
    @property
    def engine_kafka_sasl_username(self) -> str: ...
    @property
    def engine_kafka_sasl_oauthbearer_token_file(self) -> str: ...
    @property
    def engine_kafka_ssl_keystore_location(self) -> str: ...
    @property
    def engine_kafka_proxy_principal(self) -> str: ...
    @property
    def engine_kafka_proxy_sasl_mechanism(self) -> str: ...
    @property
    def engine_kafka_proxy_sasl_username(self) -> str: ...
    @property
    def engine_kafka_proxy_sasl_password(self) -> SecretStr: ...
    @property
    def engine_kafka_proxy_sasl_oauthbearer_token_file(self) -> str: ...
    @property
    def engine_kafka_proxy_ssl_keystore_location(self) -> str: ...
    @property
    def engine_kafka_proxy_ssl_key_password(self) -> SecretStr: ...


def mechanism_of(given: ProxyCredentials) -> str:
    """How the brokers are shown that it is the principal of clients."""
    return given.engine_kafka_proxy_sasl_mechanism or given.engine_kafka_sasl_mechanism


def check_proxy_principal(given: ProxyCredentials) -> None:
    """That he has credentials, of the kind the brokers ask for, and that they are not Muster's. Raises ValueError."""
    who, protocol = given.engine_kafka_proxy_principal, given.engine_kafka_security_protocol
    by_sasl, by_key = sasl_credentials(given), key_credentials(given)
    if not who:
        if told := next((name for name, value in (by_sasl | by_key).items() if value), ""):
            raise ValueError(f"{told} is set, but {PRINCIPAL} is empty: say whose it is, or leave {told} out")
        return
    if who == f"User:{given.engine_kafka_sasl_username}":
        raise ValueError(describe_shared_credential(f"{PRINCIPAL} is {who}", "engine.kafka.sasl.username"))
    if protocol == "PLAINTEXT":
        raise ValueError(
            f"{PRINCIPAL} is {who}, but engine.kafka.security.protocol is PLAINTEXT: brokers ask nobody who he is "
            "there; name their listener that asks in engine, and its protocol"
        )
    own, others = (by_sasl, by_key) if protocol.startswith("SASL") else (by_key, by_sasl)
    if told := next((name for name, value in others.items() if value), ""):
        raise ValueError(
            f"{told} is set, but engine.kafka.security.protocol is {protocol}: brokers do not go by it; expected "
            f"{', '.join(own)}"
        )
    check_sasl_credentials(given) if protocol.startswith("SASL") else check_key_credentials(given)


def sasl_credentials(given: ProxyCredentials) -> dict[str, bool]:
    """What he logs in with, and whether it is set."""
    return {
        "engine.kafka.proxy.sasl.mechanism": bool(given.engine_kafka_proxy_sasl_mechanism),
        "engine.kafka.proxy.sasl.username": bool(given.engine_kafka_proxy_sasl_username),
        "engine.kafka.proxy.sasl.password": bool(given.engine_kafka_proxy_sasl_password.get_secret_value()),
        "engine.kafka.proxy.sasl.oauthbearer.token.file": bool(given.engine_kafka_proxy_sasl_oauthbearer_token_file),
    }


def key_credentials(given: ProxyCredentials) -> dict[str, bool]:
    """The same of his certificate."""
    return {
        "engine.kafka.proxy.ssl.keystore.location": bool(given.engine_kafka_proxy_ssl_keystore_location),
        "engine.kafka.proxy.ssl.key.password": bool(given.engine_kafka_proxy_ssl_key_password.get_secret_value()),
    }


def check_sasl_credentials(given: ProxyCredentials) -> None:
    mechanism = mechanism_of(given)
    if mechanism == OAUTHBEARER:
        check_is_not_the_nodes(
            given,
            "sasl.oauthbearer.token.file",
            given.engine_kafka_proxy_sasl_oauthbearer_token_file,
            given.engine_kafka_sasl_oauthbearer_token_file,
        )
        return
    name, own = given.engine_kafka_proxy_sasl_username, given.engine_kafka_sasl_username
    if not name:
        raise ValueError(describe_missing(given, "sasl.username", f" (by {mechanism})"))
    if name == own:
        raise ValueError(
            describe_shared_credential(f"engine.kafka.proxy.sasl.username is {name}", "engine.kafka.sasl.username")
        )


def check_key_credentials(given: ProxyCredentials) -> None:
    check_is_not_the_nodes(
        given,
        "ssl.keystore.location",
        given.engine_kafka_proxy_ssl_keystore_location,
        given.engine_kafka_ssl_keystore_location,
    )


def check_is_not_the_nodes(given: ProxyCredentials, setting: str, file: str, own: str) -> None:
    """A file of his, not that of the node."""
    if not file:
        raise ValueError(describe_missing(given, setting))
    if own and Path(file) == Path(own):
        raise ValueError(
            describe_shared_credential(f"engine.kafka.proxy.{setting} is {file}", f"engine.kafka.{setting}")
        )


def describe_missing(given: ProxyCredentials, setting: str, how: str = "") -> str:
    return (
        f"{PRINCIPAL} is {given.engine_kafka_proxy_principal}, but engine.kafka.proxy.{setting} is empty: with nothing "
        f"to show to the brokers{how} clients do not come in as him; set it, or leave {PRINCIPAL} out"
    )


def describe_shared_credential(told: str, own: str) -> str:
    return (
        f"{told}, as {own}: whoever comes in by a certificate could write as this node where it keeps groups and lists "
        "of rights; expected credentials of another, who has no right to them"
    )


# Checks of how clients log in
# ----------------------------


class ProxyLoginPolicy(Protocol):
    """The settings that are looked at."""

    @property
    def connections_max_reauth_ms(self) -> int: ...
    @property
    def engine_kafka_security_protocol(self) -> str: ...
    @property
    def engine_kafka_ssl_keystore_location(self) -> str: ...
    @property
    def engine_kafka_proxy_principal(self) -> str: ...


def check_proxy_logins(given: ProxyLoginPolicy, door: ListenerAddress, client_auth: str) -> None:
    """door: `kafka.listeners`. client_auth: whether it asks for certificates."""
    if given.connections_max_reauth_ms:
        raise ValueError(
            f"connections.max.reauth.ms is {given.connections_max_reauth_ms}, but engine is a Kafka: its brokers say "
            "how long a login holds; set it there, and leave it out here"
        )
    where = f"kafka.listeners is {format_address(*door.address)} ({door.protocol})"
    protocol = given.engine_kafka_security_protocol
    if given.engine_kafka_proxy_principal:
        check_certificates_required(given.engine_kafka_proxy_principal, where, door, client_auth)
        return
    if door.encrypted and client_auth != "none":
        raise ValueError(
            f"ssl.client.auth is {client_auth}, but engine is a Kafka: TLS ends at this node, so the brokers would not "
            "see a client's certificate; expected listener.name.kafka.ssl.client.auth=none, and SASL_SSL:// if clients "
            "authenticate at the brokers, or engine.kafka.proxy.principal with the credentials with which the node "
            "logs in for all of them"
        )
    if protocol.startswith("SASL") and not door.asks_by_sasl:
        raise ValueError(
            f"{where}, but engine.kafka.security.protocol is {protocol}: clients must authenticate at the "
            f"brokers; expected {'SASL_SSL' if door.encrypted else 'SASL_PLAINTEXT'}:// before it, with authorizer=acl"
        )
    if door.asks_by_sasl and not protocol.startswith("SASL"):
        raise ValueError(
            f"{where}, but engine.kafka.security.protocol is {protocol}: it is the brokers that decide about logins, "
            f"and there they ask nobody; expected {'SSL' if door.encrypted else 'PLAINTEXT'}:// before it, or the "
            "brokers' listener that asks in engine"
        )
    if protocol == "SSL" and given.engine_kafka_ssl_keystore_location:
        raise ValueError(
            f"engine.kafka.ssl.keystore.location is {given.engine_kafka_ssl_keystore_location}: by its certificate all "
            "clients of kafka.listeners would come to the brokers as this node; expected another way for it to show "
            "who it is, such as engine.kafka.sasl.mechanism, or no kafka.listeners"
        )


def check_certificates_required(who: str, where: str, door: ListenerAddress, client_auth: str) -> None:
    """That nobody comes to the brokers as this principal who has not shown the node a certificate."""
    if door.asks_by_sasl:
        raise ValueError(
            f"{where}, but {PRINCIPAL} is {who}: either clients log in at the brokers themselves, or they come to them "
            f"as {who}; expected SSL:// before it, or no {PRINCIPAL}"
        )
    if not door.encrypted or client_auth != "required":
        asks = f"ssl.client.auth is {client_auth}" if door.encrypted else where
        raise ValueError(
            f"{asks}, but {PRINCIPAL} is {who}: who shows no certificate would come to the brokers as {who} all the "
            f"same; expected SSL:// and listener.name.kafka.ssl.client.auth=required, or no {PRINCIPAL}"
        )
