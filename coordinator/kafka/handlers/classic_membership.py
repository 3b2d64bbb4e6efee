"""Classic group membership: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A node on its own coordinates every group; `handlers/cluster_backend.py` answers FindCoordinator for a cluster.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final
from uuid import uuid4

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import MemberIdentity, Protocol
from muster.coordinator.edge.request_limits import MAX_NAME_CHARS
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint
from muster.coordinator.kafka.handlers.transactions import TransactionService
from muster.coordinator.kafka.protocol import (
    check_length,
    check_lengths,
    check_optional_length,
    refuse_transactions,
)
from muster.coordinator.runtime.shards import partition_for
from muster.long_work import map_in_turns

GROUP_KEYS: Final = 0
TRANSACTION_KEYS: Final = 1
"""The key types of groups and of transactions, which are not coordinated here; share groups have another."""

BATCHED: Final = 4
"""FindCoordinator asks for several keys from this version on."""

ID_FIRST: Final = 4
"""JoinGroup sends newcomers back with a member id from this version on (KIP-394)."""

NULLABLE_PROTOCOL: Final = 7
SKIPS_ASSIGNMENT: Final = 9
NAMED_PROTOCOL: Final = 5
"""SyncGroup says which protocol it means from this version on (KIP-559)."""

MANY_LEAVE: Final = 3
"""LeaveGroup names several members from this version on."""


class MembershipHandlers:
    """`endpoint` is what FindCoordinator answers: a node on its own coordinates every group, and every transactional id
    if it has `transactions`."""

    def __init__(
        self,
        groups: GroupRequests,
        endpoint: Callable[[], AdvertisedEndpoint],
        transactions: TransactionService | None = None,
    ) -> None:
        self._groups = groups
        self._endpoint = endpoint
        self._transactions = transactions
        self._all_is_well: dict[int, EncodedAnswer] = {}
        """By version, each written once."""

    async def find_coordinator(self, request: Any, call: KafkaCall) -> Any:
        response = struct("FindCoordinatorResponse")
        if request.key_type == TRANSACTION_KEYS and (unprepared := await self._prepare()) is not None:
            return answer_all(request, call.api_version, unprepared)
        if call.api_version < BATCHED:
            return response(**self._coordinator(request.key, request.key_type))
        made = struct("FindCoordinatorResponse.coordinators")
        found = await map_in_turns(
            lambda key: made(key=key, **self._coordinator(key, request.key_type)),
            dict.fromkeys(request.coordinator_keys),
        )
        return response(coordinators=found)

    def join_group_now(self, request: Any, call: KafkaCall) -> Any:
        groups, peer = self._groups, call.peer
        if request.group_id not in peer.groups:
            groups.watch_connection(request.group_id, call)
        who, rights_of = peer.identity, groups.rights_of
        rights = who.told.rights if who.told.moment is rights_of.moment else rights_of.of(who)
        return groups.begin_request(
            request.group_id,
            partial(make_join_event, request, call, groups.next_id(), rights, peer.number),
            effects.JoinReply,
            lambda reply: make_join_response(reply, request.member_id, call.api_version),
        )

    def sync_group_now(self, request: Any, call: KafkaCall) -> Any:
        return self._groups.begin_request(
            request.group_id,
            partial(make_sync_event, request, call, self._groups.next_id()),
            effects.SyncReply,
            make_sync_response,
        )

    def heartbeat_now(self, request: Any, call: KafkaCall) -> Any:
        """The usual one, of a dynamic member whose group is as it knows it, is answered at once."""
        group_id, who, rights_of = request.group_id, call.peer.identity, self._groups.rights_of
        if group_id not in call.peer.groups:  # its JoinGroup came by another connection, or to an earlier process
            self._groups.watch_connection(group_id, call)
        rights = who.told.rights if who.told.moment is rights_of.moment else rights_of.of(who)
        if request.group_instance_id is None and self._groups.driver.beat(
            partition_for(group_id, self._groups.shards), group_id, request.member_id, request.generation_id, rights
        ):
            return self._all_is_well.get(call.api_version) or self._success_answer(call.api_version)
        return self._groups.begin_request(
            group_id,
            lambda: make_classic_heartbeat_event(request, self._groups.next_id(), rights),
            effects.HeartbeatReply,
            lambda reply: struct("HeartbeatResponse")(error_code=reply.code),
        )

    def _success_answer(self, version: int) -> EncodedAnswer:
        response = struct("HeartbeatResponse")()
        made = self._all_is_well[version] = EncodedAnswer(encode("HeartbeatResponse", version, response))
        return made

    def leave_group_now(self, request: Any, call: KafkaCall) -> Any:
        return self._groups.begin_request(
            request.group_id,
            lambda: make_leave_event(request, call, self._groups.next_id()),
            effects.LeaveReply,
            lambda reply: make_leave_response(reply, call.api_version),
        )

    async def _prepare(self) -> dict[str, Any] | None:
        """Have the log of transactional ids made, if there is none yet; why nobody coordinates them, if so."""
        if self._transactions is None:
            return None
        try:
            await self._transactions.prepare()
        except CoordinatorError as error:
            return {"node_id": -1, "port": -1, "error_code": error.code, "error_message": str(error)}
        return None

    def _coordinator(self, key: str, key_type: int) -> dict[str, Any]:
        if key_type == TRANSACTION_KEYS and self._transactions is not None:
            return self._of_transactional_id(key)
        if key_type == TRANSACTION_KEYS:
            none = refuse_transactions(key)
            return {"node_id": -1, "port": -1, "error_code": none.code, "error_message": str(none)}
        if key_type != GROUP_KEYS:
            why = f"key type {key_type} has no coordinator here; only groups have one ({GROUP_KEYS})"
            return {"node_id": -1, "port": -1, "error_code": ErrorCode.INVALID_REQUEST, "error_message": why}
        return self._of_group(key)

    def _of_transactional_id(self, transactional_id: str) -> dict[str, Any]:
        """Who coordinates it: this node, if it is the only one."""
        endpoint = self._endpoint()
        return {"node_id": endpoint.node_id, "host": endpoint.host, "port": endpoint.port, "error_message": ""}

    def _of_group(self, group_id: str) -> dict[str, Any]:
        """Who coordinates it: this node, if it is the only one."""
        endpoint = self._endpoint()
        return {"node_id": endpoint.node_id, "host": endpoint.host, "port": endpoint.port, "error_message": ""}


def answer_all(request: Any, version: int, told: dict[str, Any]) -> Any:
    """FindCoordinator's answer where it is the same for every key."""
    if version < BATCHED:
        return struct("FindCoordinatorResponse")(**told)
    made = struct("FindCoordinatorResponse.coordinators")
    keys = dict.fromkeys(request.coordinator_keys)
    return struct("FindCoordinatorResponse")(coordinators=[made(key=key, **told) for key in keys])


def make_join_event(
    request: Any, call: KafkaCall, request_id: int, rights: Rights = None, connection: int = 0
) -> events.JoinGroup:
    protocols = offered_protocols(request.protocols)
    check_lengths(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=call.client_id,
        protocol_type=request.protocol_type,
        reason=request.reason,
    )
    version, peer = call.api_version, call.peer
    return events.JoinGroup(
        request_id=request_id,
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=peer.host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=protocols,
        fresh_id="" if request.member_id else str(uuid4()),
        reason=request.reason or "",
        require_known_member_id=version >= ID_FIRST,
        supports_skip_assignment=version >= SKIPS_ASSIGNMENT,
        client_software=peer.software,
        rights=rights,
        connection=connection,
    )


def offered_protocols(offered: Sequence[Any]) -> tuple[Protocol, ...]:
    """What a member offers, each name once."""
    if len(offered) > 1 and len({one.name for one in offered}) != len(offered):
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a protocol is offered twice; name each assignor once"
        )
    protocols = []
    for one in offered:
        if len(one.name) > MAX_NAME_CHARS:
            check_length("protocols.name", one.name)
        make = one_protocol if len(one.metadata) <= MOST_SHARED_BYTES else Protocol
        protocols.append(make(one.name, one.metadata))
    return tuple(protocols)


MOST_SHARED_BYTES: Final = 1_024
"""Of a subscription that members share: they mostly say the same, and again with each JoinGroup."""
one_protocol: Final = lru_cache(maxsize=1_024)(Protocol)


def make_join_response(reply: effects.JoinReply, asked_as: str, version: int) -> Any:
    name = reply.protocol_name
    return struct("JoinGroupResponse")(
        error_code=reply.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=name or "" if version < NULLABLE_PROTOCOL else name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id or asked_as,
        members=listed_members(reply.members) if reply.members else [],
    )


def listed_members(members: Sequence[effects.JoinedMember]) -> list[Any]:
    """What the leader is told of all."""
    made = struct("JoinGroupResponse.members")
    return [
        made(member_id=one.member_id, group_instance_id=one.group_instance_id, metadata=one.metadata) for one in members
    ]


def make_sync_response(reply: effects.SyncReply) -> Any:
    return struct("SyncGroupResponse")(
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


def make_sync_event(request: Any, call: KafkaCall, request_id: int) -> events.SyncGroup:
    named = call.api_version >= NAMED_PROTOCOL
    if named and (request.protocol_type is None or request.protocol_name is None):
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"SyncGroup version {call.api_version} came without protocol_type or protocol_name; give both",
        )
    check_lengths(group_id=request.group_id, member_id=request.member_id, group_instance_id=request.group_instance_id)
    return events.SyncGroup(
        request_id=request_id,
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type if named else None,
        protocol_name=request.protocol_name if named else None,
        assignments=said_shares(request.assignments) if request.assignments else (),
    )


def said_shares(assignments: Sequence[Any]) -> tuple[tuple[str, bytes], ...]:
    """The leader's plan. Of two shares for one member the last counts."""
    return tuple({one.member_id: one.assignment for one in assignments}.items())


def make_classic_heartbeat_event(request: Any, request_id: int, rights: Rights = None) -> events.Heartbeat:
    return events.Heartbeat(
        request_id,
        check_length("group_id", request.group_id),
        check_length("member_id", request.member_id),
        check_optional_length("group_instance_id", request.group_instance_id),
        request.generation_id,
        rights,
    )


def make_leave_event(request: Any, call: KafkaCall, request_id: int) -> events.LeaveGroup:
    members = tuple(leaving_member_identity(one) for one in request.members)
    if call.api_version < MANY_LEAVE:
        members = (MemberIdentity(check_length("member_id", request.member_id)),)
    return events.LeaveGroup(request_id, check_length("group_id", request.group_id), members)


def make_leave_response(reply: effects.LeaveReply, version: int) -> Any:
    if version < MANY_LEAVE:
        return struct("LeaveGroupResponse")(error_code=reply.members[0].code if reply.members else reply.code)
    made = struct("LeaveGroupResponse.members")
    rows = [
        made(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=one.code)
        for one in reply.members
    ]
    return struct("LeaveGroupResponse")(error_code=reply.code, members=rows)


def leaving_member_identity(member: Any) -> MemberIdentity:
    return MemberIdentity(
        check_length("members.member_id", member.member_id),
        check_optional_length("members.group_instance_id", member.group_instance_id),
        check_length("members.reason", member.reason or ""),
    )
