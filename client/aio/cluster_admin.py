"""The admin client's administration of a cluster: nodes, elections, reassignments, users, API tokens, ACLs and quotas.

Cluster calls raise TransportRefused (UNIMPLEMENTED) at a standalone node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from muster.assignors.api import TopicPartition
from muster.client.calls import methods
from muster.client.calls.coordinator_search import check_code
from muster.client.calls.group_calls import Answered, GroupAnswer
from muster.client.calls.methods import ClientMethod, Request
from muster.client.calls.transport import Transport
from muster.client.described import TokenDescription, UserDescription
from muster.client.errors import NotAuthorized, TransportRefused
from muster.coordinator.observability.views.formatting import host_and_port
from muster.coordinator.rpc.v1 import (
    acl_service_pb2 as acl_pb,
)
from muster.coordinator.rpc.v1 import (
    cluster_service_pb2 as cluster_pb,
)
from muster.coordinator.rpc.v1 import (
    errors_pb2,
)
from muster.coordinator.rpc.v1 import (
    quota_service_pb2 as quota_pb,
)
from muster.coordinator.rpc.v1 import (
    security_service_pb2 as security_pb,
)
from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.acl_entries import AclFilter
from muster.storage.rpc.v1 import broker_service_pb2


async def ask(
    transport: Transport,
    method: ClientMethod[Request, Answered],
    request: Request,
    doing: str,
    address: str | None = None,
) -> Answered:
    """Call a node (or the one at `address`), again if that may help and does no harm. Raises Refused."""
    answer = await transport.retried(method, request, doing=doing, address=address)
    check_code(answer.error_code, answer.error_message)
    return answer


def check_results(results: Iterable[GroupAnswer]) -> None:
    """Raise Refused for the first that was refused."""
    for result in results:
        check_code(result.error_code, result.error_message)


# Nodes, elections and reassignments
# ----------------------------------

WantedReplicas: TypeAlias = Literal["none", "all", "under-replicated", "under-min-isr", "offline"]

FILTERS: Final[Mapping[str, cluster_pb.PartitionFilter]] = {
    "none": cluster_pb.PARTITION_FILTER_UNSPECIFIED,
    "all": cluster_pb.PARTITION_FILTER_ALL,
    "under-replicated": cluster_pb.PARTITION_FILTER_UNDER_REPLICATED,
    "under-min-isr": cluster_pb.PARTITION_FILTER_UNDER_MIN_ISR,
    "offline": cluster_pb.PARTITION_FILTER_OFFLINE,
}


class ClusterCalls:
    """The administration of a cluster, as part of `Admin`. On a standalone node, all calls raise TransportRefused
    (status UNIMPLEMENTED).
    """

    _transport: Transport

    async def nodes(self) -> dict[str, int]:
        """Node ids by the address at which each is reached."""
        metadata = await self._transport.retried(
            methods.METADATA, broker_service_pb2.MetadataRequest(), doing="looking up the nodes"
        )
        return {host_and_port(node.host, node.port): node.node_id for node in metadata.brokers}

    async def describe_cluster(
        self, partitions: WantedReplicas = "none", topics: Iterable[str] = ()
    ) -> cluster_pb.DescribeClusterResponse:
        """Return the nodes, the controller, the number of unhealthy partitions, and the partitions that `partitions`
        selects, of these topics or of all.
        """
        request = cluster_pb.DescribeClusterRequest(partitions=FILTERS[partitions], topics=topics)
        return await ask(self._transport, methods.DESCRIBE_CLUSTER, request, "looking at the cluster")

    async def topic_copies(self, topic: str) -> list[cluster_pb.ClusterPartitionState]:
        """Return leader and replicas of a topic's partitions; nothing from a standalone node, or without the right."""
        try:
            return list((await self.describe_cluster("all", [topic])).partitions)
        except (TransportRefused, NotAuthorized) as error:
            if isinstance(error, TransportRefused) and error.status != "UNIMPLEMENTED":
                raise
            return []

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> list[cluster_pb.ElectedLeader]:
        """Elect each partition's first replica; None: wherever another replica leads. `unclean`: elect any live
        replica of one partition that has no leader; records may be lost. Returns the outcomes, which include
        refusals.
        """
        request = cluster_pb.ElectLeadersRequest(
            election_type=cluster_pb.ELECTION_TYPE_UNCLEAN
            if unclean
            else cluster_pb.ELECTION_TYPE_PREFERRED_UNSPECIFIED,
            partitions=[
                cluster_pb.ClusterPartition(topic=topic, partition=number) for topic, number in partitions or ()
            ],
            timeout_ms=self._patience_ms(),
        )
        answer = await self._transport.call(methods.ELECT_LEADERS, request, doing="electing leaders")
        check_code(answer.error_code, answer.error_message)
        return list(answer.results)

    async def reassign_partitions(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> list[cluster_pb.AlteredReassignment]:
        """Reassign replicas, the first of which is the preferred leader; None cancels a reassignment. It has begun on
        return. Returns the outcomes, which include refusals.
        """
        request = cluster_pb.AlterPartitionReassignmentsRequest(timeout_ms=self._patience_ms())
        for (topic, number), replicas in wanted.items():
            request.partitions.add(topic=topic, partition=number, replicas=replicas, cancel=replicas is None)
        answer = await self._transport.call(methods.ALTER_REASSIGNMENTS, request, doing="reassigning partitions")
        check_code(answer.error_code, answer.error_message)
        return list(answer.results)

    async def reassignments(self) -> list[cluster_pb.ClusterPartitionState]:
        """Return the partitions whose replicas are changing."""
        request = cluster_pb.ListPartitionReassignmentsRequest()
        answer = await ask(self._transport, methods.LIST_REASSIGNMENTS, request, "listing reassignments")
        return list(answer.partitions)

    async def drain_node(self, node_id: int, *, on: bool = True) -> list[TopicPartition]:
        """Move leadership away from a node until it is undrained (`on=False`). Returns what it still leads."""
        request = cluster_pb.DrainNodeRequest(node_id=node_id, undrain=not on, timeout_ms=self._patience_ms())
        doing = f"draining node {node_id}"
        answer = await self._transport.call(methods.DRAIN_NODE, request, doing=doing)
        if answer.error_code == errors_pb2.ERROR_CODE_NOT_COORDINATOR:  # over a Kafka each node answers for itself
            address = {number: address for address, number in (await self.nodes()).items()}.get(node_id)
            answer = await self._transport.call(methods.DRAIN_NODE, request, doing=doing, address=address)
        check_code(answer.error_code, answer.error_message)
        return [(each.topic, each.partition) for each in answer.still_leads]

    async def explain_elections(
        self, limit: int = 50, topic: str = "", *, address: str | None = None
    ) -> list[cluster_pb.Election]:
        """Return the last elections that changed a leader, newest first. Raises Refused (6) where the node has no
        copy of the ledger of elections: ask another by its `address`.
        """
        request = cluster_pb.ExplainElectionsRequest(limit=limit, topic=topic)
        answer = await ask(self._transport, methods.EXPLAIN_ELECTIONS, request, "explaining elections", address)
        return list(answer.elections)

    def _patience_ms(self) -> int:
        """How long the node may take: less than this client waits for its answer."""
        return max(1, self._transport.config.request_timeout_ms * 4 // 5)


# Users and API tokens
# --------------------


class AccountCalls:
    """Users and API tokens, as part of `Admin`."""

    _transport: Transport

    async def users(self) -> list[UserDescription]:
        """Return the users that log in with a password, by name, with their mechanisms."""
        request = security_pb.DescribeUsersRequest()
        answer = await ask(self._transport, methods.DESCRIBE_USERS, request, "listing users")
        return [UserDescription(each.name, tuple(each.mechanisms), each.iterations) for each in answer.users]

    async def put_users(self, passwords: Mapping[str, str], iterations: int = 0) -> None:
        """Create users, or change their passwords. `iterations`: of SCRAM; 0: the node's. Raises Refused."""
        request = security_pb.AlterUsersRequest()
        for name, password in passwords.items():
            request.upsertions.add(name=name, password=password, iterations=iterations)
        await self._alter(request, "making users")

    async def delete_users(self, names: Sequence[str]) -> None:
        """Delete users, and end their connections. Raises Refused for one that does not exist; others are deleted."""
        await self._alter(security_pb.AlterUsersRequest(deletions=names), "deleting users")

    async def tokens(self) -> list[TokenDescription]:
        """Return the API tokens, oldest first, without their secrets."""
        request = security_pb.DescribeTokensRequest()
        answer = await ask(self._transport, methods.DESCRIBE_TOKENS, request, "listing tokens")
        return list(map(read_token, answer.tokens))

    async def create_token(self, name: str, principal: str = "", lifetime_ms: int = 0) -> tuple[str, TokenDescription]:
        """Create a token; return its secret, which cannot be shown again, and its description. `lifetime_ms`: 0 for
        no end.
        """
        request = security_pb.CreateTokenRequest(name=name, principal=principal, lifetime_ms=lifetime_ms)
        answer = await ask(self._transport, methods.CREATE_TOKEN, request, "making a token")
        return answer.token, read_token(answer.description)

    async def revoke_tokens(self, ids: Sequence[str]) -> None:
        """Revoke tokens, and end what they opened. Raises Refused for one that does not exist; others are revoked."""
        request = security_pb.RevokeTokensRequest(token_ids=ids)
        answer = await ask(self._transport, methods.REVOKE_TOKENS, request, "revoking tokens")
        check_results(answer.results)

    async def _alter(self, request: security_pb.AlterUsersRequest, doing: str) -> None:
        answer = await ask(self._transport, methods.ALTER_USERS, request, doing)
        check_results(answer.results)


def read_token(token: security_pb.DescribedToken) -> TokenDescription:
    return TokenDescription(token.token_id, token.name, token.principal, token.created_ms, token.expires_ms or None)


# Access control lists
# --------------------


class AclCalls:
    """Access control lists, as part of `Admin`. Calls raise TransportRefused (UNIMPLEMENTED) if the node has none."""

    _transport: Transport

    async def _call_acls(self, method: ClientMethod[Request, Answered], request: Request, doing: str) -> Answered:
        """Raises Refused, and TransportRefused, which says so if the node keeps no lists."""
        try:
            return await ask(self._transport, method, request, doing)
        except TransportRefused as error:
            if error.status != "UNIMPLEMENTED":
                raise
            why = "it keeps no access control lists; set authorizer=acl there"
            raise TransportRefused(error.address, doing, error.status, why) from None

    async def acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """Return the entries that match the filter; without one, all."""
        request = acl_pb.DescribeAclsRequest(filter=encode_acl_filter(wanted or AclFilter()))
        answer = await self._call_acls(methods.DESCRIBE_ACLS, request, "listing access control entries")
        return list(map(read_acl, answer.entries))

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Add entries; entries that exist already are kept."""
        request = acl_pb.CreateAclsRequest(creations=map(encode_acl, acls))
        await self._call_acls(methods.CREATE_ACLS, request, "adding access control entries")

    async def delete_acls(self, wanted: Iterable[AclFilter], *, validate_only: bool = False) -> list[Acl]:
        """Remove the entries that match any of the filters, and return them. `validate_only`: remove nothing."""
        request = acl_pb.DeleteAclsRequest(filters=map(encode_acl_filter, wanted), validate_only=validate_only)
        answer = await self._call_acls(methods.DELETE_ACLS, request, "removing access control entries")
        return list(map(read_acl, answer.entries))

    async def check_acl(
        self, principal: str, operation: Operation, kind: ResourceType, name: str, host: str = ""
    ) -> tuple[bool, str]:
        """Return whether a principal may do this, and the reason in one sentence."""
        request = acl_pb.CheckAclRequest(
            principal=principal, host=host, operation=operation, resource_type=kind, resource_name=name
        )
        answer = await self._call_acls(methods.CHECK_ACL, request, f"asking what {principal} may")
        return answer.allowed, answer.reason


def encode_acl(acl: Acl) -> acl_pb.AclEntry:
    return encode_acl_filter(AclFilter(*acl))


def encode_acl_filter(wanted: AclFilter) -> acl_pb.AclEntry:
    return acl_pb.AclEntry(
        resource_type=wanted.resource_type,
        pattern_type=wanted.pattern,
        resource_name=wanted.name,
        principal=wanted.principal,
        host=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def read_acl(entry: acl_pb.AclEntry) -> Acl:
    return Acl(
        ResourceType(entry.resource_type),
        PatternType(entry.pattern_type),
        entry.resource_name,
        entry.principal,
        entry.host,
        Operation(entry.operation),
        Permission(entry.permission_type),
    )


# Quotas
# ------

Entity: TypeAlias = Mapping[str, str | None]
"""Whom a quota applies to: names by type (user, client-id, ip); None is the default of the type."""


class QuotaCalls:
    """Quotas, as part of `Admin`."""

    _transport: Transport

    async def quotas(
        self, entity: Entity | None = None, *, any_of: Sequence[str] = (), strict: bool = False
    ) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Return entities with their quotas: all, or those that have the parts of `entity`, and any name of each type
        in `any_of`. `strict`: and no part of another type.
        """
        request = quota_pb.DescribeQuotasRequest(strict=strict)
        for kind, name in (entity or {}).items():
            request.components.add(type=kind, name=name, is_default=name is None)
        for kind in any_of:
            request.components.add(type=kind)
        answer = await ask(self._transport, methods.DESCRIBE_QUOTAS, request, "looking at quotas")
        return [
            ({part.type: part.name if part.HasField("name") else None for part in entry.entity}, dict(entry.values))
            for entry in answer.entries
        ]

    async def alter_quotas(
        self,
        entity: Entity,
        set: Mapping[str, float] | None = None,
        unset: Sequence[str] = (),
        *,
        validate_only: bool = False,
    ) -> None:
        """Set and unset quotas of an entity by name. They are in force on return. Raises Refused."""
        request = quota_pb.AlterQuotasRequest(validate_only=validate_only)
        line = request.entries.add(set=set or {}, unset=unset)
        for kind, name in entity.items():
            line.entity.add(type=kind, name=name)
        answer = await self._transport.call(methods.ALTER_QUOTAS, request, doing="changing quotas")
        check_code(answer.error_code, answer.error_message)
        check_results(answer.results)
