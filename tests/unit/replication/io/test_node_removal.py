"""What a controller has taken in is removed once: where the answer is lost, by what is there then."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.replication.io.controller_candidate import ControllerWatch
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.events_and_effects import AdminMarker
from muster.coordinator.zookeeper.errors import ConnectionLost


class Markers:
    """The first removal's answer is lost."""

    def __init__(self) -> None:
        self.removed: list[events_and_effects.RemoveMarker] = []

    async def remove(self, wanted: events_and_effects.RemoveMarker) -> None:
        self.removed.append(wanted)
        if len(self.removed) == 1:
            raise ConnectionLost("cut")

    async def read(self) -> list[events_and_effects.ControllerEvent]:
        return []


async def nothing() -> Any:
    return None


async def none_of_them() -> set[Any]:
    return set()


async def no_topics() -> events_and_effects.TopicsRead:
    return events_and_effects.TopicsRead((), False)


@pytest.mark.parametrize(
    ("wanted", "times"),
    [
        (events_and_effects.RemoveMarker(AdminMarker.REASSIGN), 2),
        (events_and_effects.RemoveMarker(AdminMarker.DELETE, "t"), 1),
    ],
)
def test_a_removal_whose_answer_is_lost_is_asked_for_again_where_nothing_else_would(
    wanted: events_and_effects.RemoveMarker, times: int
) -> None:
    """Topics to delete are read anew each time, and the controller asks again for those that are still there; what it
    read before says nothing of one of that name that was marked since."""

    async def story() -> None:
        watching = ControllerWatch(cast(Any, None), lambda event: None, lambda text: None, lambda: 0)
        markers = Markers()
        watching._markers = cast(Any, markers)
        watching._drained, watching._changes, watching._topics = (
            cast(Any, SimpleNamespace(read=read)) for read in (nothing, none_of_them, no_topics)
        )
        watching.remove(wanted)
        with pytest.raises(ConnectionLost):
            await watching._look_at_the_rest()
        await watching._look_at_the_rest()
        await watching._look_at_the_rest()
        assert markers.removed == [wanted] * times

    asyncio.run(story())
