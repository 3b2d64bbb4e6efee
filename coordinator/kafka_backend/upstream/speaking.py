"""Which of Kafka's APIs the engine speaks, in which versions, and which of them it cannot do without."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class SupportedApi(NamedTuple):
    """One API. Versions first to last are spoken; `needed`: an upstream without any of them is refused at start."""

    key: int
    first: int
    last: int
    needed: bool = False


SUPPORTED_APIS: Final[Mapping[str, SupportedApi]] = {
    # Up to 12 a fetch names topics, not ids; up to 9 a produce answers without addresses of brokers.
    "Produce": SupportedApi(0, 3, 9, needed=True),
    "Fetch": SupportedApi(1, 4, 12, needed=True),
    "ListOffsets": SupportedApi(2, 2, 7, needed=True),
    "Metadata": SupportedApi(3, 10, 12, needed=True),
    "OffsetCommit": SupportedApi(8, 6, 9),
    "OffsetFetch": SupportedApi(9, 8, 9),
    "FindCoordinator": SupportedApi(10, 1, 3, needed=True),
    "JoinGroup": SupportedApi(11, 5, 9),
    "Heartbeat": SupportedApi(12, 3, 4),
    "LeaveGroup": SupportedApi(13, 3, 5),
    "SyncGroup": SupportedApi(14, 3, 5),
    "DescribeGroups": SupportedApi(15, 3, 6),
    "ListGroups": SupportedApi(16, 3, 5),
    "SaslHandshake": SupportedApi(17, 1, 1),
    "ApiVersions": SupportedApi(18, 0, 3),
    "CreateTopics": SupportedApi(19, 2, 7),
    "InitProducerId": SupportedApi(22, 1, 4, needed=True),
    "AddPartitionsToTxn": SupportedApi(24, 0, 3),
    "DescribeConfigs": SupportedApi(32, 1, 4),
    "SaslAuthenticate": SupportedApi(36, 0, 2),
    "DescribeProducers": SupportedApi(61, 0, 0),
    "DescribeTransactions": SupportedApi(65, 0, 0),
    "ConsumerGroupDescribe": SupportedApi(69, 0, 0),
}


def negotiate_versions(offered: Mapping[int, tuple[int, int]]) -> dict[str, int]:
    """The highest version of each API that both sides speak; APIs without one are left out.

    >>> negotiate_versions({18: (0, 4), 0: (0, 2), 1: (4, 17)})
    {'Fetch': 12, 'ApiVersions': 3}
    """
    found = {}
    for name, api in SUPPORTED_APIS.items():
        first, last = offered.get(api.key, (0, -1))
        version = min(api.last, last)
        if version >= max(api.first, first):
            found[name] = version
    return found


def missing_apis(versions: Mapping[str, int]) -> list[str]:
    """What the engine cannot do without and the upstream does not offer, such as `Metadata 10`."""
    return [f"{name} {api.first}" for name, api in SUPPORTED_APIS.items() if api.needed and name not in versions]
