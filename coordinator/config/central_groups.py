"""Groups whose coordinator stops, assigns and starts its members."""

from pydantic import BaseModel, Field

from muster.coordinator.config.values import MAX_INT


class CentralGroupSettings(BaseModel):
    group_central_rebalance_max_retries: int = Field(
        default=4,
        alias="group.central.rebalance.max.retries",
        ge=0,
        le=1_000,
        description="How often a failed attempt to rebalance a central group is repeated before it is reported.",
    )
    group_central_rebalance_backoff_ms: int = Field(
        default=2_000,
        alias="group.central.rebalance.backoff.ms",
        ge=1,
        le=MAX_INT,
        description="The pause before a failed attempt to rebalance a central group is repeated.",
    )
    group_central_max_timed_out_heartbeats: int = Field(
        default=3,
        alias="group.central.max.timed.out.heartbeats",
        ge=1,
        le=1_000,
        description="Pings in a row that a member of a central group may leave unanswered before it is given up.",
    )
