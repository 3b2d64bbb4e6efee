"""Acls: the lists by gRPC, and the answer to who may do what. What callers need for that is asked before."""

from typing import Any, Final

from muster.coordinator.edge.positions import run_off_loop_if_large
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import acl_service_pb2 as pb
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.security.deciding import find_deciding_entry
from muster.coordinator.security.filters import AclFilter, parse_acl_filter
from muster.coordinator.security.identity import Identity, parse_principal
from muster.coordinator.security.model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.validation import check_entry
from muster.coordinator.server.security.acls import NodeAcls, TooManyAcls
from muster.coordinator.server.security.security_store import error_code_for
from muster.storage.errors import StorageError

MOST_ENTRIES: Final = 1_000
"""Of one request."""
ROW: Final = 5
"""An entry takes so many times as long as a position does."""
NOWHERE: Final = "0.0.0.0"
"""An address from which nobody comes."""


class AclService:
    """The handlers."""

    def __init__(self, acls: NodeAcls, authorizer: AclAuthorizer, *, allow_if_no_acl_found: bool) -> None:
        self._acls = acls
        self._authorizer = authorizer
        self._allow_if_none = allow_if_no_acl_found

    async def describe_acls(self, request: pb.DescribeAclsRequest, call: object) -> pb.DescribeAclsResponse:
        try:
            found = await self._acls.described(filter_from_entry(request.filter))
        except ValueError as error:
            return pb.DescribeAclsResponse(**build_acl_refusal(error))
        return await run_off_loop_if_large(
            lambda: pb.DescribeAclsResponse(entries=map(build_acl_entry, found)), ROW * len(found)
        )

    async def create_acls(self, request: pb.CreateAclsRequest, call: object) -> pb.CreateAclsResponse:
        try:
            check_entry_count(request.creations)
            await self._acls.create([acl_from_entry(entry) for entry in request.creations])
        except (ValueError, StorageError) as error:
            return pb.CreateAclsResponse(**build_acl_refusal(error))
        return pb.CreateAclsResponse()

    async def delete_acls(self, request: pb.DeleteAclsRequest, call: object) -> pb.DeleteAclsResponse:
        try:
            check_entry_count(request.filters)
            wanted = [filter_from_entry(each) for each in request.filters]
            if request.validate_only:
                found = [await self._acls.described(each) for each in wanted]
            else:
                found = await self._acls.delete(wanted)
        except (ValueError, StorageError) as error:
            return pb.DeleteAclsResponse(**build_acl_refusal(error))

        def answer() -> pb.DeleteAclsResponse:
            gone = dict.fromkeys(acl for each in found for acl in each)
            return pb.DeleteAclsResponse(entries=map(build_acl_entry, gone))

        return await run_off_loop_if_large(answer, ROW * sum(map(len, found)))

    async def check_acl(self, request: pb.CheckAclRequest, call: object) -> pb.CheckAclResponse:
        try:
            who = Identity(parse_principal(request.principal), request.host or NOWHERE)
            operation, kind = Operation(request.operation), ResourceType(request.resource_type)
        except ValueError as error:
            return pb.CheckAclResponse(**build_acl_refusal(error))
        name = request.resource_name
        allowed = self._authorizer.allows(who, operation, kind, name)
        if self._authorizer.is_super(who):
            return pb.CheckAclResponse(allowed=allowed, reason=f"{who.principal} is one of super.users")
        # The decision is made of few entries; which they are is looked for among all about this name.
        about = await self._acls.described(AclFilter(kind, PatternType.MATCH, name))
        entry, reason = find_deciding_entry(about, who, operation, allow_if_none=self._allow_if_none)
        answer = pb.CheckAclResponse(allowed=allowed, reason=reason)
        if entry is not None:
            answer.entry.CopyFrom(build_acl_entry(entry))
        return answer


def check_entry_count(entries: Any) -> None:
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"{len(entries)} entries in one request; expected at most {MOST_ENTRIES}")


def build_acl_refusal(error: Exception) -> dict[str, Any]:
    if isinstance(error, StorageError):
        return {"error_code": int(error_code_for(error)), "error_message": str(error)}
    code = ErrorCode.POLICY_VIOLATION if isinstance(error, TooManyAcls) else ErrorCode.INVALID_REQUEST
    return {"error_code": int(code), "error_message": str(error)}


def acl_from_entry(entry: pb.AclEntry) -> Acl:
    """Raises ValueError."""
    return check_entry(
        entry.resource_type,
        entry.pattern_type,
        entry.resource_name,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
    )


def filter_from_entry(entry: pb.AclEntry) -> AclFilter:
    """Raises ValueError."""
    return parse_acl_filter(
        entry.resource_type or ResourceType.ANY,
        entry.pattern_type or PatternType.ANY,
        entry.resource_name if entry.HasField("resource_name") else None,
        entry.principal if entry.HasField("principal") else None,
        entry.host if entry.HasField("host") else None,
        entry.operation or Operation.ANY,
        entry.permission_type or Permission.ANY,
    )


def build_acl_entry(acl: Acl) -> pb.AclEntry:
    return pb.AclEntry(
        resource_type=acl.resource_type,
        pattern_type=acl.pattern,
        resource_name=acl.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
