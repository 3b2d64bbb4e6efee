"""How fine the metrics of groups and topics are, and how many there may be."""

from typing import Literal

from pydantic import BaseModel, Field

from muster.coordinator.config.values import MAX_INT


class MetricsSettings(BaseModel):
    metrics_granularity: Literal["group", "topic", "partition"] = Field(
        default="partition",
        alias="metrics.granularity",
        description="How fine /metrics is: a group's sums and balance, what is of its topics beside, or each "
        "partition, as the dashboards of kafka_exporter expect it.",
    )
    metrics_max_series: int = Field(
        default=50_000,
        alias="metrics.max.series",
        ge=0,
        le=MAX_INT,
        description="How many series of groups and topics /metrics has; beyond it the finest of the largest groups and "
        "topics are left out; sums and numbers of members stay.",
    )
    metrics_member_commit_age: bool = Field(
        default=False,
        alias="metrics.member.commit.age",
        description="Whether /metrics tells of each member how long ago it last committed.",
    )
