"""What the admin client does with access control lists."""

from collections.abc import Iterable, Sequence

from muster.client.calls import methods
from muster.client.calls.methods import ClientMethod, Request, Response
from muster.client.calls.transport import Transport
from muster.client.errors import TransportRefused, refusal
from muster.coordinator.rpc.v1 import acl_service_pb2 as acl_pb
from muster.coordinator.rpc.v1 import errors_pb2
from muster.coordinator.security.filters import AclFilter
from muster.coordinator.security.model import Acl, Operation, PatternType, Permission, ResourceType


class AclCalls:
    """Part of the admin client."""

    _transport: Transport

    async def _ask(self, method: ClientMethod[Request, Response], request: Request, *, doing: str) -> Response:
        """Raises TransportRefused, which says so where the node keeps no lists."""
        try:
            return await self._transport.retried(method, request, doing=doing)
        except TransportRefused as error:
            if error.status != "UNIMPLEMENTED":
                raise
            why = "it keeps no access control lists; set authorizer=acl there"
            raise TransportRefused(error.address, doing, error.status, why) from None

    async def acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """The entries that a filter means; all there are without one."""
        request = acl_pb.DescribeAclsRequest(filter=encode_acl_filter(wanted or AclFilter()))
        answer = await self._ask(methods.DESCRIBE_ACLS, request, doing="listing access control entries")
        check_acl_code(answer.error_code, answer.error_message)
        return list(map(read_acl, answer.entries))

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Add entries; those that are there already stay."""
        request = acl_pb.CreateAclsRequest(creations=map(encode_acl, acls))
        answer = await self._ask(methods.CREATE_ACLS, request, doing="adding access control entries")
        check_acl_code(answer.error_code, answer.error_message)

    async def delete_acls(self, wanted: Iterable[AclFilter], *, validate_only: bool = False) -> list[Acl]:
        """Take away what the filters mean; what went, or with `validate_only` what would."""
        request = acl_pb.DeleteAclsRequest(filters=map(encode_acl_filter, wanted), validate_only=validate_only)
        answer = await self._ask(methods.DELETE_ACLS, request, doing="removing access control entries")
        check_acl_code(answer.error_code, answer.error_message)
        return list(map(read_acl, answer.entries))

    async def check_acl(
        self, principal: str, operation: Operation, kind: ResourceType, name: str, host: str = ""
    ) -> tuple[bool, str]:
        """Whether somebody may do this, and why, in one sentence."""
        request = acl_pb.CheckAclRequest(
            principal=principal, host=host, operation=operation, resource_type=kind, resource_name=name
        )
        answer = await self._ask(methods.CHECK_ACL, request, doing=f"asking what {principal} may")
        check_acl_code(answer.error_code, answer.error_message)
        return answer.allowed, answer.reason


def check_acl_code(code: errors_pb2.ErrorCode, message: str) -> None:
    """Raises Refused."""
    if code:
        raise refusal(code, errors_pb2.ErrorCode.Name(code), message)


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
