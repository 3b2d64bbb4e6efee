"""The second door: where Kafka's protocol is served, and what its clients may take up."""

from functools import partial
from typing import Self

from pydantic import BaseModel, Field, field_validator, model_validator

from muster.coordinator.config.addresses import (
    WITH_SASL,
    Address,
    ListenerAddress,
    advertised_address,
    check_advertised_host,
    parse_listener,
)
from muster.coordinator.config.values import MAX_INT, validated_by


class KafkaSettings(BaseModel):
    kafka_listeners: str = Field(
        default="",
        alias="kafka.listeners",
        description="The HOST:PORT on which Kafka's protocol is served, behind PLAINTEXT:// (as without a word), "
        "SSL://, SASL_PLAINTEXT:// or SASL_SSL://; port 0 takes a free one, empty: not at all.",
    )
    kafka_advertised_listeners: str = Field(
        default="",
        alias="kafka.advertised.listeners",
        description=(
            "The HOST:PORT that Kafka clients are told to connect to; empty means that of kafka.listeners, port 0 the "
            "port that is listened on."
        ),
    )
    auto_create_topics_enable: bool = Field(
        default=True,
        alias="auto.create.topics.enable",
        description="Whether a topic that a Kafka client asks for by name is made when there is none.",
    )
    socket_request_max_bytes: int = Field(
        default=100 << 20,
        alias="socket.request.max.bytes",
        ge=1 << 20,
        le=MAX_INT,
        description="The largest request that is taken from a Kafka client.",
    )
    max_connections: int = Field(
        default=20_000,
        alias="max.connections",
        ge=1,
        le=MAX_INT,
        description="How many Kafka clients may be connected at once.",
    )
    max_connections_per_ip: int = Field(
        default=MAX_INT,
        alias="max.connections.per.ip",
        ge=1,
        le=MAX_INT,
        description="How many of them may come from one address.",
    )
    connections_max_idle_ms: int = Field(
        default=600_000,
        alias="connections.max.idle.ms",
        ge=1_000,
        le=MAX_INT,
        description="A Kafka client's connection on which nothing moved for this long is closed.",
    )
    kafka_max_in_flight_requests_per_connection: int = Field(
        default=1_000,
        alias="kafka.max.in.flight.requests.per.connection",
        ge=1,
        le=MAX_INT,
        description="How many requests of one Kafka client are read before some of them have been answered.",
    )
    kafka_max_in_flight_bytes_per_connection: int = Field(
        default=64 << 20,
        alias="kafka.max.in.flight.bytes.per.connection",
        ge=1 << 20,
        le=MAX_INT,
        description="How many bytes they may have altogether; a single request of any allowed size is always read.",
    )
    kafka_max_unsent_bytes_per_connection: int = Field(
        default=1 << 20,
        alias="kafka.max.unsent.bytes.per.connection",
        ge=1 << 10,
        le=MAX_INT,
        description="A Kafka client that leaves more than this of its answers unread gets no further ones for now.",
    )
    kafka_max_unsent_bytes: int = Field(
        default=256 << 20,
        alias="kafka.max.unsent.bytes",
        ge=1 << 20,
        le=MAX_INT,
        description="What all Kafka clients together may leave unread; above it the slowest is cut off.",
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
                "Kafka's protocol is not served; set kafka.listeners, too"
            )
        return self
