"""A right is judged once and then remembered, and still every request is answered as the rights of now say.

`guard_member` does so for Kafka's requests of members, `CallGuard.cleared` for the fast path of a gRPC heartbeat, which
quotas close as long as any is set.
"""

import asyncio
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.kafka.authorization.guard import AnswerCompleter, find_judge, guard_immediate
from muster.coordinator.kafka.authorization.judge import AccessCheck
from muster.coordinator.kafka.codec.messages import struct
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.access_model import Acl, Identity, Operation, PatternType, Permission, Principal
from muster.coordinator.security.access_model import ResourceType as Kind
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.security.quota_usage import NodeQuotas, UserCounts
from muster.coordinator.server.rpc_dispatch import FastPathHandler, MethodKind, ServiceMethod, fast_path_of
from muster.coordinator.server.security.audit_log import AuditLog
from muster.coordinator.server.security.call_guard import guard_method
from muster.coordinator.server.security.call_rights import CallRights
from muster.coordinator.server.security.grpc_quotas import GrpcQuotas

GROUPS: Final = ("g", "gh")
USERS: Final = ("alice", "bob")
USER, GROUP = st.sampled_from(USERS), st.sampled_from(GROUPS)
Step: TypeAlias = tuple[str, str, str]


def entry(user: str, group: str, permission: Permission) -> Acl:
    """Prefixed, so that an entry of "g" is one of "gh", too."""
    return Acl(Kind.GROUP, PatternType.PREFIXED, group, f"User:{user}", "*", Operation.READ, permission)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["heartbeat", "heartbeat", "allow", "deny", "take away", "replace", "set quota", "no quota"]),
        USER,
        GROUP,
    ),
    min_size=10,
    max_size=40,
)


def change_rights(authorizer: AclAuthorizer, acls: set[Acl], step: Step) -> None:
    """Change the lists of `authorizer`, and `acls`, which are all there is afterwards."""
    what, user, group = step
    gone, come = set[Acl](), set[Acl]()
    match what:
        case "allow" | "deny":
            come = {entry(user, group, Permission[what.upper()])}
        case "take away":
            gone = {entry(user, group, permission) for permission in (Permission.ALLOW, Permission.DENY)}
        case "replace":
            acls.clear()
            acls.add(entry(user, group, Permission.ALLOW))
            authorizer.replace(acls)
            return
        case _:
            return
    acls -= gone
    acls |= come
    authorizer.change(gone, come)


def identities() -> dict[str, Identity]:
    return {user: Identity(Principal("User", user), "10.0.0.1") for user in USERS}


def kafka_guard(authorizer: AclAuthorizer) -> Any:
    judge, catalog = find_judge("Heartbeat"), SimpleNamespace(auto_create=False)
    assert judge is not None
    may: Any = AccessCheck(authorizer, catalog)  # type: ignore[arg-type]
    whole = AnswerCompleter("HeartbeatResponse", 4)
    return guard_immediate(judge, may, lambda request, call: "served", whole, "Heartbeat")


@settings(max_examples=100)
@given(STEPS)
def test_a_right_that_was_cleared_once_ends_when_it_is_taken_away(steps: list[Step]) -> None:
    authorizer, who, acls = AclAuthorizer(), identities(), set[Acl]()
    guarded, request = kafka_guard(authorizer), struct("HeartbeatRequest")
    for step in steps:
        change_rights(authorizer, acls, step)
        what, user, group = step
        if what == "heartbeat":
            call: Any = SimpleNamespace(peer=SimpleNamespace(identity=who[user]), api_version=4)
            answer = guarded(request(group_id=group), call)
            assert (answer == "served") is allows(acls, user, group)


def allows(acls: set[Acl], user: str, group: str) -> bool:
    """Full judging: nothing is remembered from one question to the next."""
    fresh = AclAuthorizer()
    fresh.replace(acls)
    return fresh.allows(identities()[user], Operation.READ, Kind.GROUP, group)


class GuardedHeartbeat:
    """gRPC's Heartbeat behind quotas and rights, as in a node, and which way each call went."""

    def __init__(self) -> None:
        self.authorizer = AclAuthorizer()
        self.quotas = NodeQuotas()
        self.who = identities()
        self.ways: list[str] = []
        inner = ServiceMethod(
            "/coordinator.rpc.v1.GroupCoordinator/Heartbeat",
            MethodKind.UNARY,
            pb.HeartbeatRequest,
            pb.HeartbeatResponse,
            FastPathHandler(self.answer, self.beat),
        )
        owners: Any = SimpleNamespace(kept=False)
        quotas = GrpcQuotas(self.quotas, UserCounts(self.quotas), lambda *_: None, dict, owners)
        (charged,) = quotas.charged({"Heartbeat": inner}).values()
        rights = CallRights(self.authorizer, AuditLog(lambda line: None), lambda: set())
        self.outer = guard_method(charged, rights, self.staged)

    async def staged(self, request: Any) -> list[str]:
        return []

    async def answer(self, request: Any, call: Any) -> pb.HeartbeatResponse:
        self.ways.append("long")
        return pb.HeartbeatResponse()

    def beat(self, request: Any, call: Any) -> bool:
        self.ways.append("fast")
        return True

    def heartbeat(self, user: str, group: str) -> str:
        """Which way it went: fast, long, or refused by neither."""
        self.ways.clear()
        call: Any = SimpleNamespace(identity=self.who[user], door="grpc", peer_host="10.0.0.1")
        request, fast = pb.HeartbeatRequest(group_id=group), fast_path_of(self.outer)
        assert fast is not None
        if not fast(request, call):
            asyncio.run(self.outer(request, call))
        return self.ways[0] if self.ways else "refused"


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_a_heartbeat_goes_the_fast_path_only_with_the_right_of_now_and_without_a_quota(steps: list[Step]) -> None:
    node, acls = GuardedHeartbeat(), set[Acl]()
    for step in steps:
        change_rights(node.authorizer, acls, step)
        what, user, group = step
        match what:
            case "set quota" | "no quota":
                node.quotas.replace({(("user", user),): {"request_percentage": 1e9}} if what == "set quota" else {})
            case "heartbeat":
                way = node.heartbeat(user, group)
                assert (way != "refused") is allows(acls, user, group)
                assert way != "fast" or not node.quotas.active


def test_a_member_that_was_cleared_goes_the_fast_path_until_a_quota_is_set() -> None:
    node = GuardedHeartbeat()
    node.authorizer.replace(
        [Acl(Kind.GROUP, PatternType.LITERAL, "g", "User:alice", "*", Operation.READ, Permission.ALLOW)]
    )
    assert [node.heartbeat("alice", "g") for _ in range(3)] == ["long", "fast", "fast"]
    node.quotas.replace({(("user", "bob"),): {"request_percentage": 1e9}})
    assert node.heartbeat("alice", "g") == "long"
