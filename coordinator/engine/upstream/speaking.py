"""Which of Kafka's APIs the engine speaks, in which versions, and which of them it cannot do without."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Spoken(NamedTuple):
    """One API. Versions first to last are spoken; `needed`: an upstream without any of them is refused at start."""

    key: int
    first: int
    last: int
    needed: bool = False


SPOKEN: Final[Mapping[str, Spoken]] = {
    # Up to 12 a fetch names topics, not ids; up to 9 a produce answers without addresses of brokers.
    "Produce": Spoken(0, 3, 9, needed=True),
    "Fetch": Spoken(1, 4, 12, needed=True),
    "ListOffsets": Spoken(2, 2, 7, needed=True),
    "Metadata": Spoken(3, 10, 12, needed=True),
    "OffsetCommit": Spoken(8, 6, 9),
    "OffsetFetch": Spoken(9, 8, 9),
    "FindCoordinator": Spoken(10, 1, 3, needed=True),
    "JoinGroup": Spoken(11, 5, 9),
    "Heartbeat": Spoken(12, 3, 4),
    "LeaveGroup": Spoken(13, 3, 5),
    "SyncGroup": Spoken(14, 3, 5),
    "DescribeGroups": Spoken(15, 3, 6),
    "ListGroups": Spoken(16, 3, 5),
    "SaslHandshake": Spoken(17, 1, 1),
    "ApiVersions": Spoken(18, 0, 3),
    "CreateTopics": Spoken(19, 2, 7),
    "InitProducerId": Spoken(22, 1, 4, needed=True),
    "AddPartitionsToTxn": Spoken(24, 0, 3),
    "DescribeConfigs": Spoken(32, 1, 4),
    "SaslAuthenticate": Spoken(36, 0, 2),
    "DescribeProducers": Spoken(61, 0, 0),
    "DescribeTransactions": Spoken(65, 0, 0),
    "ConsumerGroupDescribe": Spoken(69, 0, 0),
}


def agreed(offered: Mapping[int, tuple[int, int]]) -> dict[str, int]:
    """The highest version of each API that both sides speak; APIs without one are left out.

    >>> agreed({18: (0, 4), 0: (0, 2), 1: (4, 17)})
    {'Fetch': 12, 'ApiVersions': 3}
    """
    found = {}
    for name, api in SPOKEN.items():
        first, last = offered.get(api.key, (0, -1))
        version = min(api.last, last)
        if version >= max(api.first, first):
            found[name] = version
    return found


def lacking(versions: Mapping[str, int]) -> list[str]:
    """What the engine cannot do without and the upstream does not offer, such as `Metadata 10`."""
    return [f"{name} {api.first}" for name, api in SPOKEN.items() if api.needed and name not in versions]
