"""Over somebody's Kafka: as whom clients come to the brokers that have shown the node a certificate.

Their certificates end at the node, so it logs in for them, by credentials that are theirs and not its own: with its own
whoever comes in could write what the node keeps there.
"""

from pathlib import Path
from typing import Final, Protocol

from pydantic import BaseModel, Field, SecretStr, field_validator

from muster.coordinator.config.values import SASL_MECHANISMS

PRINCIPAL: Final = "engine.kafka.proxy.principal"
OAUTHBEARER: Final = "OAUTHBEARER"


class ProxyPrincipalSettings(BaseModel):
    engine_kafka_proxy_principal: str = Field(
        default="",
        alias=PRINCIPAL,
        description="As whom clients with certificates come to the brokers, as Kafka calls him; his credentials are "
        "the settings that begin with engine.kafka.proxy.",
        json_schema_extra={"allowed": "TYPE:NAME, such as User:apps, or nothing"},
    )
    engine_kafka_proxy_sasl_mechanism: str = Field(
        default="",
        alias="engine.kafka.proxy.sasl.mechanism",
        description="How the brokers are shown that it is he; nothing: as engine.kafka.sasl.mechanism.",
        json_schema_extra={"allowed": f"one of {', '.join(SASL_MECHANISMS)}, or nothing"},
    )
    engine_kafka_proxy_sasl_username: str = Field(
        default="",
        alias="engine.kafka.proxy.sasl.username",
        description="His name, unless by a token.",
        json_schema_extra={"allowed": "a name, or nothing"},
    )
    engine_kafka_proxy_sasl_password: SecretStr = Field(
        default=SecretStr(""),
        alias="engine.kafka.proxy.sasl.password",
        description="His password.",
    )
    engine_kafka_proxy_sasl_oauthbearer_token_file: str = Field(
        default="",
        alias="engine.kafka.proxy.sasl.oauthbearer.token.file",
        description="The file with his token for OAUTHBEARER, read anew for each connection.",
        json_schema_extra={"allowed": "a file, or nothing"},
    )
    engine_kafka_proxy_ssl_keystore_location: str = Field(
        default="",
        alias="engine.kafka.proxy.ssl.keystore.location",
        description="His certificate and key, where engine.kafka.security.protocol is SSL.",
        json_schema_extra={"allowed": "a PEM file, or nothing"},
    )
    engine_kafka_proxy_ssl_key_password: SecretStr = Field(
        default=SecretStr(""),
        alias="engine.kafka.proxy.ssl.key.password",
        description="What that key is encrypted with, if it is.",
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
            raise ValueError(f"{value!r} is not spoken here")
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
