"""Whether rebalances are told as traces, and to whom."""

from importlib.util import find_spec
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, model_validator

from muster.coordinator.config.addresses import CollectorText


class TracingSettings(BaseModel):
    otel_exporter: Literal["none", "otlp"] = Field(
        default="none",
        alias="otel.exporter",
        description="Whether each completed rebalance is told as a trace of OpenTelemetry, by OTLP over gRPC.",
    )
    otel_endpoint: CollectorText = Field(
        default=CollectorText("http://127.0.0.1:4317"),
        alias="otel.endpoint",
        description="The collector that takes the traces, as http://HOST:PORT, or https://HOST:PORT for TLS.",
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
