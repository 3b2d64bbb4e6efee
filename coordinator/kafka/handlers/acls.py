"""DescribeAcls, CreateAcls, DeleteAcls on a node that has an authorizer.

Each entry of a request is handled by itself: a refusal of one does not affect the others. `authorization/` has
already checked whether the caller may use these APIs. Imported only with an authorizer.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, Protocol

from muster.coordinator.edge.large_answers import SharedAnswers
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall
from muster.coordinator.security.access_model import Acl
from muster.coordinator.security.acl_entries import AclFilter, check_entry, parse_acl_filter
from muster.long_work import make_aside, work_through
from muster.storage.errors import StorageError

INVALID_REQUEST: Final = 42
POLICY_VIOLATION: Final = 44
RETRIABLE_CODES: Final = frozenset({7, 15})
"""REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE: the lists are a cluster's, and who keeps them is away."""
FAILED: Final = -1
"""UNKNOWN_SERVER_ERROR, with words: it could not be written."""


CREATED_ROW_WEIGHT: Final = 5
"""An entry that is made takes so many times as long as one that is told."""


class AclRepository(Protocol):
    """Who keeps them. Raises StorageError where nothing can be written, ValueError where there is no room."""

    async def described(self, wanted: AclFilter) -> list[Acl]: ...

    async def create(self, acls: Sequence[Acl]) -> None: ...

    async def delete(self, wanted: Sequence[AclFilter]) -> list[list[Acl]]: ...


class AclHandlers:
    """Each entry of a request for itself: one that is refused does not hurt the others."""

    def __init__(self, lists: AclRepository) -> None:
        self._lists = lists
        self._described: SharedAnswers[tuple[int, AclFilter], EncodedAnswer] = SharedAnswers()

    async def describe_acls(self, request: Any, call: KafkaCall) -> Any:
        version = call.api_version
        try:
            wanted = parse_filter(request)
        except ValueError as error:
            return struct("DescribeAclsResponse")(error_code=INVALID_REQUEST, error_message=str(error))

        async def described() -> EncodedAnswer:
            found = await self._lists.described(wanted)
            return await make_aside(lambda: make_describe_response(found, version), len(found))

        return await self._described.get((version, wanted), described)

    async def create_acls(self, request: Any, call: KafkaCall) -> Any:
        rows, heavy = request.creations, CREATED_ROW_WEIGHT * len(request.creations)
        asked = await work_through(lambda: [parse_entry(each) for each in rows], heavy)
        failure = await self._created([each for each in asked if isinstance(each, Acl)])
        return await work_through(lambda: make_create_response(asked, failure, call.api_version), heavy)

    async def _created(self, acls: Sequence[Acl]) -> tuple[int, str | None]:
        try:
            await self._lists.create(acls)
        except ValueError as full:
            return POLICY_VIOLATION, str(full)
        except StorageError as error:
            return failure_code(error), str(error)
        return 0, None

    async def delete_acls(self, request: Any, call: KafkaCall) -> Any:
        asked = [parse_filter_or_refusal(each) for each in request.filters]
        made = struct("DeleteAclsResponse.filter_results")
        failure: dict[str, Any] = {}
        gone: list[list[Acl]] = []
        good = [each for each in asked if isinstance(each, AclFilter)]
        try:
            gone = await self._lists.delete(good)
        except StorageError as error:
            failure = {"error_code": failure_code(error), "error_message": str(error)}
        matching = iter(gone or [[]] * len(good))

        def answer() -> EncodedAnswer:
            rows = []
            for each in asked:
                if isinstance(each, ValueError):
                    rows.append(made(error_code=INVALID_REQUEST, error_message=str(each)))
                else:
                    rows.append(made(matching_acls=[deleted_row(acl) for acl in next(matching)], **failure))
            whole = struct("DeleteAclsResponse")(filter_results=rows)
            return EncodedAnswer(encode("DeleteAclsResponse", call.api_version, whole))

        return await make_aside(answer, sum(map(len, gone)))


def failure_code(error: StorageError) -> int:
    """Of what was not, or may not have been, for the moment, clients hear that; they may try again."""
    return error.code if error.code in RETRIABLE_CODES else FAILED


def make_create_response(
    asked: Sequence[Acl | ValueError], failure: tuple[int, str | None], version: int
) -> EncodedAnswer:
    made = struct("CreateAclsResponse.results")
    rows = []
    for each in asked:
        code, why = failure if isinstance(each, Acl) else (INVALID_REQUEST, str(each))
        rows.append(made(error_code=code, error_message=why))
    return EncodedAnswer(encode("CreateAclsResponse", version, struct("CreateAclsResponse")(results=rows)))


def parse_entry(row: Any) -> Acl | ValueError:
    """What a CreateAcls row asks for, or what speaks against it."""
    try:
        return check_entry(
            row.resource_type,
            row.resource_pattern_type,
            row.resource_name,
            row.principal,
            row.host,
            row.operation,
            row.permission_type,
        )
    except ValueError as refusal:
        return refusal


def parse_filter(row: Any) -> AclFilter:
    """Raises ValueError."""
    return parse_acl_filter(
        row.resource_type_filter,
        row.pattern_type_filter,
        row.resource_name_filter,
        row.principal_filter,
        row.host_filter,
        row.operation,
        row.permission_type,
    )


def parse_filter_or_refusal(row: Any) -> AclFilter | ValueError:
    try:
        return parse_filter(row)
    except ValueError as refusal:
        return refusal


def make_describe_response(acls: Sequence[Acl], version: int) -> EncodedAnswer:
    """Entries by the resource that they are about; they come sorted."""
    made, entry = struct("DescribeAclsResponse.resources"), struct("DescribeAclsResponse.resources.acls")
    rows = [
        made(
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            acls=[
                entry(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in entries
            ],
        )
        for (kind, pattern, name), entries in groupby(acls, key=lambda acl: acl[:3])
    ]
    return EncodedAnswer(encode("DescribeAclsResponse", version, struct("DescribeAclsResponse")(resources=rows)))


def deleted_row(acl: Acl) -> Any:
    return struct("DeleteAclsResponse.filter_results.matching_acls")(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
