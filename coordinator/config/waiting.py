"""How many may wait at once: for their group, for the next turn, on a stream that tells them."""

from pydantic import BaseModel, Field

from muster.coordinator.config.values import MAX_INT


class WaitingSettings(BaseModel):
    max_parked_requests: int = Field(
        default=20_000,
        alias="max.parked.requests",
        ge=1,
        le=MAX_INT,
        description="How many JoinGroup and SyncGroup requests may wait for their group at once.",
    )
    queued_max_requests: int = Field(
        default=20_000,
        alias="queued.max.requests",
        ge=1,
        le=MAX_INT,
        description="How many requests may wait for the coordinator's next turn before further ones are refused.",
    )
    max_watchers: int = Field(
        default=1_000,
        alias="max.watchers",
        ge=0,
        le=MAX_INT,
        description="How many WatchGroup streams may be open at once.",
    )
    max_sessions: int = Field(
        default=20_000,
        alias="max.sessions",
        ge=0,
        le=MAX_INT,
        description="How many members may be on a Session stream, shared or their own, at once; further ones poll.",
    )
    group_reconnect_grace_ms: int = Field(
        default=MAX_INT,
        alias="group.reconnect.grace.ms",
        ge=0,
        le=MAX_INT,
        description="How long a member whose Session stream broke is waited for, if its session does not end before.",
    )
