"""Over which time use is measured against quotas."""

from pydantic import BaseModel, Field


class QuotaSettings(BaseModel):
    quota_window_num: int = Field(
        default=11,
        ge=1,
        le=1_000,
        alias="quota.window.num",
        description="How many windows a rate is measured over, for quotas.",
    )
    quota_window_size_seconds: int = Field(
        default=1,
        ge=1,
        le=3_600,
        alias="quota.window.size.seconds",
        description="How long each of these windows is, in seconds.",
    )
