"""Every method of gRPC, and so of HTTP, against no right, the right, a denial and a prefix: made of the table."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import ServiceDescriptor

from muster.coordinator.errors import CallDenied
from muster.coordinator.rpc.v1 import (
    acl_service_pb2,
    cluster_service_pb2,
    externalscaler_service_pb2,
    quota_service_pb2,
    security_service_pb2,
)
from muster.coordinator.security.access_model import (
    CLUSTER_NAME,
    Acl,
    Identity,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.security.rights import BROKER, GROUPS, REFUSALS, RPC_RIGHTS, RequiredRight, WithoutRight
from muster.coordinator.server.backend.node_services import SERVICES
from muster.coordinator.server.rpc_dispatch import MethodKind, ServiceMethod, kind_of
from muster.coordinator.server.security.audit_log import AuditLog, Line
from muster.coordinator.server.security.call_guard import guard_method, guard_table, is_path, names_at
from muster.coordinator.server.security.call_rights import CallRights

BOB: Final = Identity(Principal("User", "bob"), "10.0.0.7", "TOKEN")
NAME: Final = "payments.eu"
ALL_SERVICES: Final[tuple[ServiceDescriptor, ...]] = (
    *SERVICES,
    *(
        service
        for file in (
            externalscaler_service_pb2,
            acl_service_pb2,
            security_service_pb2,
            quota_service_pb2,
            cluster_service_pb2,
        )
        for service in file.DESCRIPTOR.services_by_name.values()
    ),
)
DESCRIPTORS: Final = {f"/{each.full_name}/{rpc.name}": rpc for each in ALL_SERVICES for rpc in each.methods}


def entry(
    right: RequiredRight,
    name: str = NAME,
    *,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    name = CLUSTER_NAME if right.resource_type is ResourceType.CLUSTER else name
    return Acl(right.resource_type, pattern, name, "User:bob", "*", right.operation, permission)


class Door:
    """One method behind its guard, with a handler that answers nothing in particular."""

    def __init__(self, full_name: str, acls: Iterable[Acl]) -> None:
        rpc = DESCRIPTORS[full_name]
        self.lines: list[Line] = []
        self.called: list[Any] = []
        self.request_type = message_factory.GetMessageClass(rpc.input_type)
        self.response_type = message_factory.GetMessageClass(rpc.output_type)
        self.authorizer = AclAuthorizer()
        self.authorizer.replace(acls)
        self.rights = CallRights(self.authorizer, AuditLog(self.lines.append))
        self.method = ServiceMethod(full_name, kind_of(rpc), self.request_type, self.response_type, self.handle)
        if kind_of(rpc) is not MethodKind.UNARY:
            self.method = ServiceMethod(full_name, kind_of(rpc), self.request_type, self.response_type, self.stream)
        self.ask = guard_method(self.method, self.rights, self.staged)

    async def staged(self, request: Any) -> list[str]:
        return [NAME]

    async def handle(self, request: Any, call: Any) -> Any:
        self.called.append(request)
        return self.response_type()

    async def stream(self, request: Any, call: Any) -> Any:
        self.called.append(request)
        yield self.response_type()

    def codes(self, request: Any) -> set[int]:
        """The codes of the answer; of a status, the resource's."""
        call = SimpleNamespace(identity=BOB, door="grpc")
        try:
            if self.method.kind is MethodKind.UNARY:
                return set(codes_in(asyncio.run(self.ask(request, call))))
            asyncio.run(drained(self.ask(request, call)))
        except CallDenied:
            return {REFUSALS[ResourceType[self.lines[-1]["resource_type"]]]}
        return set()


async def drained(stream: Any) -> list[Any]:
    return [each async for each in stream]


def codes_in(message: Any) -> Iterable[int]:
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield value
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else (value,):
                yield from codes_in(each)


KEYS_OF_TRANSACTIONS: Final = (GROUPS + "FindCoordinator", ResourceType.TRANSACTIONAL_ID)
"""A right that only a request needs whose key is a transactional id."""


def put(message: Any, path: str, name: str) -> None:
    """Have the request name this, at a path of the table."""
    first, _, rest = path.partition(".")
    field, _, key = first.partition("[")
    if key:
        getattr(message, field)[key.rstrip("]")] = name
        return
    found = getattr(message, field)
    if isinstance(found, str):
        setattr(message, field, name)
    elif hasattr(found, "DESCRIPTOR"):
        put(found, rest, name)
    elif rest:
        row = found.add()
        put(row, rest, name)
        for part in ("partitions", "partition_data"):
            if hasattr(row, part):
                getattr(row, part).add()
        if hasattr(row, "partition_indexes"):
            row.partition_indexes.append(0)
    else:
        found.append(name)


def by_path(full_name: str) -> list[RequiredRight]:
    request = DESCRIPTORS[full_name].input_type
    return [
        r
        for r in RPC_RIGHTS[full_name]
        if r.lacking is WithoutRight.REFUSED and (is_path(r.of, request) or not (r.of or r.when))
    ]


CELLS = [
    (full_name, right)
    for full_name in DESCRIPTORS
    for right in by_path(full_name)
    if full_name != BROKER + "InitProducerId" and not full_name.endswith("Session")
]


@pytest.mark.parametrize(
    ("full_name", "right"), CELLS, ids=[f"{n.rpartition('/')[2]}-{r.resource_type.name}" for n, r in CELLS]
)
def test_each_right_of_each_method(full_name: str, right: RequiredRight) -> None:
    others = [entry(each) for each in by_path(full_name) if each != right]
    code = REFUSALS[right.resource_type]
    prefixed = entry(right, NAME[:4], pattern=PatternType.PREFIXED)
    denial = entry(right, permission=Permission.DENY)
    elsewhere = entry(right, "other", pattern=PatternType.PREFIXED)
    on_cluster = right.resource_type is ResourceType.CLUSTER
    for case, acls, refused in (
        ("no right", [], True),
        ("the right", [entry(right)], False),
        ("a right to something else", [] if on_cluster else [elsewhere], True),
        ("denied", [entry(right), denial], True),
        ("a denial for a prefix", [entry(right), prefixed._replace(permission=Permission.DENY)], True),
        ("by prefix", [entry(right)] if on_cluster else [prefixed], False),
        *((("instead", [entry(right.instead)], False),) if right.instead else ()),
    ):
        door = Door(full_name, [*others, *acls])
        request = door.request_type()
        for each in by_path(full_name):
            if each.of and not list(names_at(request, each.of)):
                put(request, each.of, NAME)
        if (full_name, right.resource_type) == KEYS_OF_TRANSACTIONS:
            request.key_type = "transaction"
        found = door.codes(request)
        assert (code in found) is refused, (case, found)
        assert bool(door.called) is not refused, case
        assert bool(door.lines) is refused, "who was refused is told, and nobody else"


def test_nobody_forgets_a_method() -> None:
    rpc = ServiceMethod("/coordinator.rpc.v1.GroupCoordinator/NewThing", MethodKind.UNARY, Any, Any, None)  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="no row in the table of rights"):
        guard_table({rpc.full_name: rpc}, CallRights(AclAuthorizer(), AuditLog(print)), None)  # type: ignore[arg-type]


def test_every_right_is_looked_at_somewhere() -> None:
    """By a path, or by hand: these."""
    by_hand = {
        (name.rpartition("/")[2], right.of)
        for name, rights in RPC_RIGHTS.items()
        if name in DESCRIPTORS
        for right in rights
        if right not in by_path(name)
    }
    assert by_hand == {
        ("ConsumerGroupDescribe", "-> groups.members.assignment.topic_partitions.topic_name"),
        ("ConsumerGroupHeartbeat", "topics that the pattern matches"),
        ("ListGroups", "-> groups.group_id"),
        ("OffsetFetch", "-> topics.name"),
        ("ExplainGroup", "-> topics of its entries"),
        ("DescribeTransactions", "-> topics of its transactions"),
        ("ExplainTransactions", "-> topics of its transactions"),
        ("ListTransactions", "-> transactions.transactional_id"),
        ("DescribeGroups", "-> topics of its members"),
        ("DescribeCluster", "-> topics of its rows"),
        ("ElectLeaders", "-> topics of its rows"),
        ("ListPartitionReassignments", "-> topics of its rows"),
        ("DrainNode", "-> topics of its rows"),
        ("ExplainElections", "-> topics of its rows"),
        ("SimulateAssignment", "-> topics of the plan"),
        ("WatchGroup", "-> topics of its entries"),
        ("Session", "hello.group_id, register_consumer.group_id"),
        (
            "Session",
            "register_consumer.topics, consumer_group_heartbeat.subscribed_topic_names.names",
        ),
        ("Session", "topics that the pattern matches"),
        ("SharedSession", "hello.group_id, register_consumer.group_id"),
        (
            "SharedSession",
            "register_consumer.topics, consumer_group_heartbeat.subscribed_topic_names.names",
        ),
        ("SharedSession", "topics that the pattern matches"),
        ("Metadata", "-> topics.name"),
        ("DescribeConfigs", ""),
        ("InitProducerId", ""),
        ("CommitStaged", "topics of what was staged"),
        ("AbortStaged", "topics of what was staged"),
    }
