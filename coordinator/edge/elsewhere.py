"""Groups on their way from ZooKeeper keep two positions, there and in the log: the larger counts.

So it does for members that commit to both. What it decides, both doors and simulations ask here.
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.coordinator.core.model.effects import OffsetFetchReply
from muster.coordinator.core.model.types import StoredOffset

NO_OFFSET = NO_EPOCH = -1


def later_position(stored: StoredOffset | None, elsewhere: int | None) -> StoredOffset | None:
    """The larger of a position in the log and one in ZooKeeper, where it has neither note, epoch nor time."""
    if elsewhere is None or elsewhere <= (NO_OFFSET if stored is None else stored.offset):
        return stored
    return StoredOffset(elsewhere, NO_EPOCH, "", 0)


def merge_zookeeper_positions(
    reply: OffsetFetchReply, elsewhere: Mapping[tuple[str, int], int], *, everything: bool
) -> OffsetFetchReply:
    """The answer, each position the later one. `everything`: also places that it does not name; refusals stay."""
    places = elsewhere.keys() if everything else elsewhere.keys() & reply.offsets.keys()
    found = {
        place: later_position(reply.offsets.get(place), elsewhere[place]) for place in places - reply.refused.keys()
    }
    return replace(reply, offsets={**reply.offsets, **found})
