"""The gRPC edge: sizes, streams and keepalive of its connections."""

from pydantic import BaseModel, Field

from muster.coordinator.config.values import MAX_INT


class GrpcSettings(BaseModel):
    grpc_max_message_bytes: int = Field(
        default=64 << 20,
        alias="grpc.max.message.bytes",
        ge=1 << 20,
        le=MAX_INT,
        description="The largest gRPC message that is taken or sent.",
    )
    grpc_max_pending_calls: int = Field(
        default=20_000,
        alias="grpc.max.pending.calls",
        ge=1,
        le=MAX_INT // 2,
        description="How many calls may wait to be accepted before further ones are turned away.",
    )
    grpc_max_streams_per_connection: int = Field(
        default=256,
        alias="grpc.max.streams.per.connection",
        ge=1,
        le=MAX_INT,
        description="How many calls one connection may have under way at once, so that a flood holds others up by so "
        "many; three quarters of them may be streams, more of those are refused (RESOURCE_EXHAUSTED).",
    )
    grpc_max_unsent_bytes: int = Field(
        default=128 << 20,
        alias="grpc.max.unsent.bytes",
        ge=1 << 20,
        le=MAX_INT,
        description="How many bytes of answers gRPC clients may leave unread, all together; above it the slowest are "
        "cut off, who leaves some unread is refused large answers, and who reads gets a batch at a time.",
    )
    grpc_keepalive_time_ms: int = Field(
        default=10_000,
        alias="grpc.keepalive.time.ms",
        ge=1_000,
        le=MAX_INT,
        description="A connection that is silent for this long is asked whether its peer is still there.",
    )
    grpc_keepalive_timeout_ms: int = Field(
        default=5_000,
        alias="grpc.keepalive.timeout.ms",
        ge=100,
        le=MAX_INT,
        description="A peer that does not answer that question within this time counts as gone.",
    )
    grpc_min_ping_interval_ms: int = Field(
        default=5_000,
        alias="grpc.min.ping.interval.ms",
        ge=0,
        le=MAX_INT,
        description="A client that asks the same more often than this loses its connection.",
    )
