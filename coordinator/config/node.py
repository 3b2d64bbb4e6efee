"""Settings of the node itself: its number, gRPC address, directory and log level, how it stops, and how it is observed.

Observation has three parts: samples of groups (rates, trends, KEDA's scaler), how many series the metrics of groups
and topics may have, and whether rebalances are exported as traces and to which collector.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from muster.coordinator.config.values import (
    DAY_MS,
    Address,
    CollectorText,
    ListenerAddress,
    advertised_address,
    check_advertised_host,
    parse_listener,
    validated_by,
)
from muster.storage.settings_text import NonNegativeInt32, NonNegativeInt64, SettingsModel, setting


class NodeSettings(SettingsModel):
    node_id: NonNegativeInt32 = setting(1, "The id of this node, by which clients know it.")
    listeners: str = setting(
        "127.0.0.1:9290",
        "The HOST:PORT on which gRPC is served, optionally behind PLAINTEXT:// (the default) or SSL://; port 0 takes "
        "a free one.",
    )
    advertised_listeners: str = setting(
        "",
        "The HOST:PORT that clients are told to connect to; empty means the address of listeners, port 0 the port "
        "that was bound.",
    )
    data_dir: Path = setting(
        Path("muster-data"),
        "The one directory that holds all data of the node; it is created if missing.",
        name="log.dirs",
    )
    log_dirs_free_warn_bytes: NonNegativeInt64 = setting(
        1 << 30, "The node reports a condition while log.dirs has less free space than this; 0 means never."
    )
    logging_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The lowest level of events that the node writes to standard error."
    )
    logging_format: Literal["console", "json"] = setting(
        "console", "Whether those events are lines for people (console) or one JSON object per line."
    )
    shutdown_timeout_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = setting(
        10_000, "How long a stopping node waits for answers and flushes that are under way."
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


# Samples of groups
# -----------------


class ObservationSettings(SettingsModel):
    observe_sample_ms: Annotated[int, Field(ge=100, le=DAY_MS)] = setting(
        10_000,
        "How often the node samples log ends and committed offsets, for rates, trends and health of groups; only with "
        "an HTTP listener or the scaler.",
    )
    scaler_enable: bool = setting(
        False, "Whether KEDA may ask this node, on listeners, for the number of replicas of a group's consumers."
    )


# Metrics
# -------


class MetricsSettings(SettingsModel):
    metrics_granularity: Literal["group", "topic", "partition"] = setting(
        "partition",
        "How fine /metrics is: sums and balance of groups, also figures of their topics, or also of each partition, "
        "which dashboards of kafka_exporter expect.",
    )
    metrics_max_series: NonNegativeInt32 = setting(
        50_000,
        "How many series of groups and topics /metrics has; beyond it, the finest series of the largest groups and "
        "topics are left out; sums and member counts stay.",
    )
    metrics_member_commit_age: bool = setting(False, "Whether /metrics has the time since each member's last commit.")


# Traces
# ------


class TracingSettings(SettingsModel):
    otel_exporter: Literal["none", "otlp"] = setting(
        "none", "Whether each completed rebalance is exported as an OpenTelemetry trace, by OTLP over gRPC."
    )
    otel_endpoint: CollectorText = setting(
        CollectorText("http://127.0.0.1:4317"),
        "The collector that receives the traces, as http://HOST:PORT, or https://HOST:PORT for TLS.",
    )

    @model_validator(mode="after")
    def traces_can_be_sent(self) -> Self:
        if self.otel_exporter == "none":
            return self
        if not is_collector_endpoint(self.otel_endpoint):
            raise ValueError(
                f"otel.endpoint is {self.otel_endpoint!r}; expected http://HOST:PORT, such as http://127.0.0.1:4317"
            )
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter.otlp.proto.grpc") is None:
            raise ValueError(
                "otel.exporter is otlp, but OpenTelemetry is not installed; pip install 'muster-groups[otel]', or set "
                "otel.exporter=none"
            )
        return self


def is_collector_endpoint(text: str) -> bool:
    """
    >>> is_collector_endpoint("http://127.0.0.1:4317"), is_collector_endpoint("collector:4317"), is_collector_endpoint("http://collector:x")
    (True, False, False)
    """
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False
