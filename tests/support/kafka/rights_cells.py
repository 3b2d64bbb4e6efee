"""The matrix of rights: which request tries which row of the table, and what lists it is tried with."""

from collections.abc import Iterator
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission
from muster.coordinator.security.rights import API_RIGHTS, RequiredRight
from tests.support.kafka.asked import Asked
from tests.support.kafka.rights import CLUSTER, FIELDS, acl, codes

LACKING, ALLOWED, DENIED, PREFIXED = "lacking", "allowed", "denied", "prefixed"
HOW: Final = (LACKING, ALLOWED, DENIED, PREFIXED)

MADE_BY_ASKING: Final = "one that is missing and would be made"
IN_BLOBS: Final = "-> topics of its members"
CORE: Final = "topics that subscribed_topic_regex matches"

SERVED: Final = {api.name: api for api in APIS}


def cells() -> Iterator[tuple[str, int]]:
    """An API, and which of its rights is tried."""
    for api, rights in API_RIGHTS.items():
        if api in FIELDS and api in SERVED:
            yield from ((api, place) for place, right in enumerate(rights) if right.of not in (CORE, IN_BLOBS))


def given(right: RequiredRight, name: str, how: str) -> list[Acl]:
    pattern, said = PatternType.LITERAL, name
    if how == PREFIXED and right.resource_type is not CLUSTER:
        pattern, said = PatternType.PREFIXED, name[:-1]
    allowed = acl(right.operation, right.resource_type, said, pattern)
    if how == LACKING:
        return []
    return [allowed, allowed._replace(permission=Permission.DENY, pattern=PatternType.LITERAL, name=name)][
        : 2 if how == DENIED else 1
    ]


async def configure(root: Asked, group: str) -> None:
    """Groups that have settings are listed among what has some."""
    setting = struct("IncrementalAlterConfigsRequest.resources.configs")
    row = struct("IncrementalAlterConfigsRequest.resources")(
        resource_type=32,
        resource_name=group,
        configs=[setting(name="handoff.timeout.ms", config_operation=0, value="1000")],
    )
    answer = await root("IncrementalAlterConfigs", 1, resources=[row])
    assert set(codes(answer)) == {0}, answer


def beside(tried: RequiredRight, other: RequiredRight, name: str) -> list[Acl]:
    """The other right, unless it would stand for the tried one."""
    same = other.resource_type is tried.resource_type
    if same and (other.operation is tried.operation or tried.operation is Operation.DESCRIBE):
        return []
    return [acl(other.operation, other.resource_type, name)]


def everything(api: str, version: int, asked: Any) -> None:
    """Ask for all there is, where the tried right is about what the answer lists."""
    if api == "Metadata":
        asked.topics = None if version else []
    if api == "OffsetFetch" and version > 1:
        asked.topics = None
        for group in asked.groups:
            group.topics = None
