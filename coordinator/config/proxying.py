"""Over somebody's Kafka: which groups are Muster's, and where a node stands for each broker."""

import re
from typing import Final, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from muster.coordinator.config.addresses import ListenerAddress
from muster.coordinator.config.values import MAX_INT

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


class ProxySettings(BaseModel):
    engine_kafka_groups: str = Field(
        default=".*",
        alias="engine.kafka.groups",
        description="Which groups are Muster's, by their whole ids; all others stay Kafka's.",
        json_schema_extra={"allowed": "a regular expression of RE2"},
    )
    engine_kafka_groups_except: str = Field(
        default="",
        alias="engine.kafka.groups.except",
        description="Which of those are Kafka's all the same.",
        json_schema_extra={"allowed": "a regular expression of RE2, or nothing"},
    )
    engine_kafka_broker_ports: str = Field(
        default="",
        alias="engine.kafka.broker.ports",
        description="The ports at which the node stands for the brokers, one for each.",
        json_schema_extra={"allowed": "FIRST-LAST, or nothing"},
    )
    engine_kafka_broker_id_first: int = Field(
        default=0,
        alias="engine.kafka.broker.id.first",
        ge=0,
        le=MAX_INT,
        description="The id of the broker at the first of these ports; the next id is at the next port.",
    )

    engine_kafka_broker_hosts: str = Field(
        default="",
        alias="engine.kafka.broker.hosts",
        description="Instead of ports: the names by which TLS clients ask for the brokers, all at the port of "
        "kafka.listeners.",
        json_schema_extra={"allowed": f"a host's name with {ID} in it, or nothing"},
    )
    engine_kafka_transactions: bool = Field(
        default=True,
        alias="engine.kafka.transactions",
        description="Whether transactions of clients may have positions of Muster's groups in them.",
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
