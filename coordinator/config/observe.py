"""What a node notes of its groups as time goes by, and for whom."""

from pydantic import BaseModel, Field

from muster.coordinator.config.values import DAY_MS


class ObservationSettings(BaseModel):
    observe_sample_ms: int = Field(
        default=10_000,
        alias="observe.sample.ms",
        ge=100,
        le=DAY_MS,
        description=(
            "How often the node looks at log ends and committed offsets, for rates, trends and health of groups; it "
            "looks only where the HTTP listener or the scaler is on."
        ),
    )
    scaler_enable: bool = Field(
        default=False,
        alias="scaler.enable",
        description="Whether KEDA may ask this node, on listeners, how many replicas a group's consumers should have.",
    )
