"""The ZooKeeper in which the node registers, if any."""

from pydantic import BaseModel, Field, field_validator

from muster.coordinator.config.addresses import ConnectText, parse_connect
from muster.coordinator.config.values import MAX_INT, validated_by


class ZooKeeperConnectionSettings(BaseModel):
    zookeeper_connect: ConnectText = Field(
        default=ConnectText(""),
        alias="zookeeper.connect",
        description="The ZooKeeper in which this node registers, and whose groups it shows; empty means none.",
    )
    zookeeper_session_timeout_ms: int = Field(
        default=6_000,
        alias="zookeeper.session.timeout.ms",
        ge=100,
        le=MAX_INT,
        description="How long ZooKeeper waits for a silent node before its registration goes.",
    )
    zookeeper_connection_timeout_ms: int = Field(
        default=6_000,
        alias="zookeeper.connection.timeout.ms",
        ge=100,
        le=MAX_INT,
        description="How long a starting node waits for ZooKeeper to answer before it gives up.",
    )

    is_a_connect_string = field_validator("zookeeper_connect")(validated_by(parse_connect))
