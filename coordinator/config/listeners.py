"""Settings of the three listeners for clients: gRPC, Kafka's protocol and HTTP.

gRPC: message sizes, streams and keepalive (its address belongs to the node). Kafka: where it is served, where clients
are sent, and how much a client may use. HTTP: where it is, who may use it, and how much it takes; it needs the `web`
extra; where the extra is missing, a default address gives way and a configured one is refused.
"""

import re
from functools import cache, partial
from importlib.util import find_spec
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from muster.coordinator.config.values import (
    WITH_SASL,
    Address,
    AddressOrNone,
    HostNames,
    ListenerAddress,
    advertised_address,
    check_advertised_host,
    parse_listener,
    split_list,
    validated_by,
)
from muster.storage.settings_text import MAX_INT, NonNegativeInt32, PositiveInt32, SettingsModel, setting

# gRPC
# ----


class GrpcSettings(SettingsModel):
    grpc_max_message_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_INT)] = setting(
        64 << 20, "The largest gRPC message that the node receives or sends."
    )
    grpc_max_pending_calls: Annotated[int, Field(ge=1, le=MAX_INT // 2)] = setting(
        20_000, "How many calls may wait to be accepted before further ones are refused."
    )
    grpc_max_streams_per_connection: PositiveInt32 = setting(
        256,
        "How many calls one connection may have under way, which limits how many others a flood can delay; three "
        "quarters of them may be streams, further streams are refused (RESOURCE_EXHAUSTED).",
    )
    grpc_max_unsent_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_INT)] = setting(
        128 << 20,
        "How many bytes of answers gRPC clients may leave unread, all together; above it the slowest are "
        "disconnected, clients with unread answers are refused large ones, and readers get one batch at a time.",
    )
    grpc_keepalive_time_ms: Annotated[int, Field(ge=1_000, le=MAX_INT)] = setting(
        10_000, "A connection that is silent for this long is sent a keepalive ping."
    )
    grpc_keepalive_timeout_ms: Annotated[int, Field(ge=100, le=MAX_INT)] = setting(
        5_000, "A connection whose peer does not answer a keepalive ping within this time is closed."
    )
    grpc_min_ping_interval_ms: NonNegativeInt32 = setting(
        5_000, "A client that sends keepalive pings more often than this is disconnected."
    )


# Kafka's protocol
# ----------------


class KafkaSettings(SettingsModel):
    kafka_listeners: str = setting(
        "",
        "The HOST:PORT on which Kafka's protocol is served, optionally behind PLAINTEXT:// (the default), SSL://, "
        "SASL_PLAINTEXT:// or SASL_SSL://; port 0 takes a free one; empty means that it is not served.",
    )
    kafka_advertised_listeners: str = setting(
        "",
        "The HOST:PORT that Kafka clients are told to connect to; empty means that of kafka.listeners, port 0 the "
        "port that was bound.",
    )
    auto_create_topics_enable: bool = setting(
        True, "Whether a missing topic is created when a Kafka client asks for it by name."
    )
    socket_request_max_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_INT)] = setting(
        100 << 20, "The largest request that the node accepts from a Kafka client."
    )
    old_clients: bool = setting(
        True,
        "Whether Kafka's clients from before 2.1 are served, as far back as 0.8.2, whose records have to be converted; "
        "false where strangers may come, since others pay for that.",
    )
    max_connections: PositiveInt32 = setting(20_000, "How many Kafka clients may be connected at once.")
    max_connections_per_ip: PositiveInt32 = setting(
        MAX_INT, "How many Kafka clients may be connected from one address."
    )
    connections_max_idle_ms: Annotated[int, Field(ge=1_000, le=MAX_INT)] = setting(
        600_000, "A Kafka client's connection that is idle for this long is closed."
    )
    kafka_max_in_flight_requests_per_connection: PositiveInt32 = setting(
        1_000, "How many requests of one Kafka client may be unanswered before the node stops reading from it."
    )
    kafka_max_in_flight_bytes_per_connection: Annotated[int, Field(ge=1 << 20, le=MAX_INT)] = setting(
        64 << 20,
        "How many bytes the unanswered requests of one Kafka client may have; a single request of any allowed size is "
        "always read.",
    )
    kafka_max_unsent_bytes_per_connection: Annotated[int, Field(ge=1 << 10, le=MAX_INT)] = setting(
        1 << 20,
        "A Kafka client that leaves more than this many bytes of answers unread gets no further answers for now.",
    )
    kafka_max_unsent_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_INT)] = setting(
        256 << 20,
        "How many bytes of answers all Kafka clients together may leave unread; above it the slowest is disconnected.",
    )

    @property
    def kafka_listener(self) -> ListenerAddress | None:
        """What is spoken where Kafka's protocol is served, if it is."""
        return parse_listener(self.kafka_listeners, WITH_SASL) if self.kafka_listeners else None

    @property
    def kafka_address(self) -> Address | None:
        """Where Kafka's protocol is to be served, if at all."""
        return self.kafka_listener.address if self.kafka_listener else None

    def kafka_advertised_address(self, bound_port: int) -> Address:
        """Where Kafka clients should connect, once it is known which port was bound."""
        return advertised_address(self.kafka_advertised_listeners, self.kafka_listeners, bound_port, WITH_SASL)

    is_a_kafka_address = field_validator("kafka_listeners", "kafka_advertised_listeners")(
        validated_by(partial(parse_listener, protocols=WITH_SASL))
    )

    @model_validator(mode="after")
    def kafka_can_be_reached(self) -> Self:
        if self.kafka_listeners:
            check_advertised_host(self.kafka_advertised_address(0).host, "Kafka clients", "kafka.advertised.listeners")
        elif self.kafka_advertised_listeners:
            raise ValueError(
                f"kafka.advertised.listeners is {self.kafka_advertised_listeners}, but kafka.listeners is empty: "
                "Kafka's protocol would not be served; set kafka.listeners, too"
            )
        return self


# HTTP
# ----

DEFAULT_HTTP_ADDRESS = AddressOrNone("127.0.0.1:9291")
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
WEB_EXTRA = ("starlette", "uvicorn", "jinja2", "prometheus_client")
"""What the extra `web` brings."""


class HttpSettings(SettingsModel):
    http_listeners: AddressOrNone = setting(
        DEFAULT_HTTP_ADDRESS,
        "The HOST:PORT on which probes, metrics, the JSON API and the web page are served, optionally behind "
        "PLAINTEXT:// (the default) or SSL://; port 0 takes a free one; empty means that they are not served; if the "
        "default address is taken, or the extra web is not installed, the node starts without them.",
    )
    http_insecure: bool = setting(
        False,
        "Whether http.listeners may be PLAINTEXT on an address that other machines reach, as allow.insecure.listeners "
        "allows for every listener.",
    )
    http_hosts: HostNames = setting(
        HostNames(""),
        "Host names, separated by commas, by which browsers and scrapers may call the HTTP listener, besides "
        "localhost, its own host and any IP address; requests with another host are refused, because a foreign page "
        "may have sent them.",
    )
    http_actions: bool = setting(
        True, "Whether the HTTP listener accepts requests that change something; false makes it read-only."
    )
    http_max_event_streams: PositiveInt32 = setting(
        500, "How many pages may receive changes as they happen; further ones are told to retry later."
    )
    http_max_connections: PositiveInt32 = setting(
        1_000, "How many connections the HTTP listener has at a time; further ones are closed immediately."
    )
    http_max_request_bytes: Annotated[int, Field(ge=1 << 10, le=64 << 20)] = setting(
        1 << 20, "The largest body of an HTTP request."
    )

    @property
    def http_listener(self) -> ListenerAddress | None:
        """What is spoken where HTTP is served, if it is to be."""
        if not self.http_listeners or (self.http_by_default and missing_web_packages()):
            return None
        return parse_listener(self.http_listeners)

    @property
    def http_address(self) -> Address | None:
        """Where HTTP is to be served, if at all."""
        return self.http_listener.address if self.http_listener else None

    @property
    def http_by_default(self) -> bool:
        """Whether nobody asked for an address: then it gives way, where one that was asked for is insisted on.

        A file that spells all defaults out asks for nothing (`load_settings` leaves them out).
        """
        return "http_listeners" not in self.model_fields_set

    @property
    def http_host_names(self) -> frozenset[str]:
        """Names other than plain addresses by which the listener may be called, in lower case."""
        named = {name.lower().rstrip(".") for name in split_list(self.http_hosts)}
        own = {self.http_address.host.lower()} if self.http_address else set()
        return frozenset(named | own | {"localhost"})

    is_an_http_address = field_validator("http_listeners")(validated_by(parse_listener))

    @field_validator("http_hosts")
    @classmethod
    def are_names_of_hosts(cls, value: HostNames) -> HostNames:
        for name in split_list(value):
            if not HOST_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is none: write it without scheme, port and *, such as muster.example.org")
        return value

    @model_validator(mode="after")
    def http_can_be_served(self) -> Self:
        if self.http_address is None:
            return self
        if missing := missing_web_packages():
            raise ValueError(
                f"http.listeners is {self.http_listeners}, but {', '.join(missing)} is not installed; "
                "pip install 'muster-groups[web]', or leave http.listeners empty"
            )
        return self


@cache
def missing_web_packages() -> tuple[str, ...]:
    """What the listener needs and is not installed."""
    return tuple(name for name in WEB_EXTRA if find_spec(name) is None)
