"""The node itself: its number, its gRPC address, its directory, its voice, and how it stops."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from muster.coordinator.config.addresses import (
    Address,
    ListenerAddress,
    advertised_address,
    check_advertised_host,
    parse_listener,
)
from muster.coordinator.config.values import DAY_MS, MAX_INT, validated_by


class NodeSettings(BaseModel):
    node_id: int = Field(
        default=1, alias="node.id", ge=0, le=MAX_INT, description="The number by which clients are told of this node."
    )
    listeners: str = Field(
        default="127.0.0.1:9290",
        alias="listeners",
        description="The HOST:PORT on which gRPC is served, behind PLAINTEXT:// (as without a word) or SSL://; port 0 "
        "takes a free one.",
    )
    advertised_listeners: str = Field(
        default="",
        alias="advertised.listeners",
        description=(
            "The HOST:PORT that clients are told to connect to; empty means the address of listeners, port 0 the port "
            "that is listened on."
        ),
    )
    data_dir: Path = Field(
        default=Path("muster-data"),
        alias="log.dirs",
        description="The one directory that holds everything the node keeps; it is made when missing.",
    )
    log_dirs_free_warn_bytes: int = Field(
        default=1 << 30,
        alias="log.dirs.free.warn.bytes",
        ge=0,
        le=2**63 - 1,
        description="The node's health says so when less room than this is left for log.dirs; 0 means never.",
    )
    logging_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        alias="logging.level",
        description="The least important events that the node still writes to standard error.",
    )
    logging_format: Literal["console", "json"] = Field(
        default="console",
        alias="logging.format",
        description="Whether those events are lines for people or one JSON object per line.",
    )
    shutdown_timeout_ms: int = Field(
        default=10_000,
        alias="shutdown.timeout.ms",
        ge=0,
        le=DAY_MS,
        description="How long a node that is asked to stop waits for answers and flushes under way.",
    )

    @property
    def grpc_listener(self) -> ListenerAddress:
        """What is spoken where gRPC is served."""
        return parse_listener(self.listeners)

    @property
    def listen_host(self) -> str:
        return self.grpc_listener.address.host

    @property
    def listen_port(self) -> int:
        return self.grpc_listener.address.port

    def advertised_address(self, bound_port: int) -> Address:
        """Where clients should connect, once it is known which port was bound."""
        return advertised_address(self.advertised_listeners, self.listeners, bound_port)

    @field_validator("data_dir")
    @classmethod
    def is_one_directory(cls, value: Path) -> Path:
        if "," in str(value):
            raise ValueError("this node keeps everything in one; expected no list")
        return value

    @field_validator("data_dir", mode="before")
    @classmethod
    def is_named(cls, value: object) -> object:
        if value == "":
            raise ValueError("an empty path would mean the working directory; write . if that is meant")
        return value

    is_an_address = field_validator("listeners", "advertised_listeners")(validated_by(parse_listener))

    @model_validator(mode="after")
    def can_be_reached(self) -> Self:
        if not self.listeners:
            raise ValueError("listeners is empty; expected HOST:PORT, such as 127.0.0.1:9290")
        check_advertised_host(self.advertised_address(0).host, "clients", "advertised.listeners")
        return self
