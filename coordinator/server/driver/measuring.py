"""How much a group has to do, as its shard wants it measured: the seam to whoever knows where the logs end."""

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from muster.coordinator.core.model.core_events import LoadMeasured
from muster.coordinator.core.model.effects import MeasureLoad

MeasureGroupLoad: TypeAlias = Callable[[MeasureLoad], AsyncIterator[LoadMeasured]]
"""Takes a measurement, in pieces."""


def refuse_measurement(asked: MeasureLoad, why: str) -> LoadMeasured:
    return LoadMeasured(asked.group_id, asked.serial, last=True, refused=why)


async def measure_nothing(asked: MeasureLoad) -> AsyncIterator[LoadMeasured]:
    """Of a driver without logs."""
    yield refuse_measurement(asked, "there are no logs here whose ends could be looked at")
