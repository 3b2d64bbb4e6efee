"""Over somebody's Kafka: as whom a node's clients come to the brokers, and that nobody comes as the node by mistake.

Raises ValueError with a sentence that begins with the setting to look at.
"""

from typing import Protocol

from muster.coordinator.config.addresses import ListenerAddress, format_address
from muster.coordinator.config.proxy_principal import PRINCIPAL


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
            f"ssl.client.auth is {client_auth}, but engine is a Kafka: a client's certificate ends at this node, and "
            "the brokers would not see it; expected listener.name.kafka.ssl.client.auth=none, and SASL_SSL:// where "
            "clients are to show the brokers who they are, or engine.kafka.proxy.principal with the credentials by "
            "which all of them come to the brokers"
        )
    if protocol.startswith("SASL") and not door.asks_by_sasl:
        raise ValueError(
            f"{where}, but engine.kafka.security.protocol is {protocol}: clients have to show the brokers who they "
            f"are; expected {'SASL_SSL' if door.encrypted else 'SASL_PLAINTEXT'}:// before it, with authorizer=acl"
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
