"""How much a group has to do, as its shard wants it measured: the seam to whoever knows where the logs end."""

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from muster.coordinator.core.effects import MeasureLoad
from muster.coordinator.core.events import LoadMeasured

Measure: TypeAlias = Callable[[MeasureLoad], AsyncIterator[LoadMeasured]]
"""Takes a measurement, in pieces."""


def unmeasured(asked: MeasureLoad, why: str) -> LoadMeasured:
    return LoadMeasured(asked.group_id, asked.serial, last=True, refused=why)


async def nothing_measured(asked: MeasureLoad) -> AsyncIterator[LoadMeasured]:
    """Of a driver without logs."""
    yield unmeasured(asked, "there are no logs here whose ends could be looked at")
