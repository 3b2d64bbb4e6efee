"""The handlers, over whoever keeps the lists. Whether the caller may ask at all, a judge has said before."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, Protocol

from muster.coordinator.edge.positions import here_or_off_the_loop
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import KafkaCall, Written
from muster.coordinator.security.acl.filters import AclFilter, filter_of
from muster.coordinator.security.acl.model import Acl
from muster.coordinator.security.acl.validation import checked
from muster.storage.errors import StorageError

INVALID_REQUEST: Final = 42
POLICY_VIOLATION: Final = 44
MOMENTARY: Final = frozenset({7, 15})
"""REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE: the lists are a cluster's, and who keeps them is away."""
FAILED: Final = -1
"""UNKNOWN_SERVER_ERROR, with words: it could not be written."""


ROW: Final = 5
"""An entry that is made takes so many times as long as one that is told."""


class Lists(Protocol):
    """Who keeps them. Raises StorageError where nothing can be written, ValueError where there is no room."""

    async def described(self, wanted: AclFilter) -> list[Acl]: ...

    async def create(self, acls: Sequence[Acl]) -> None: ...

    async def delete(self, wanted: Sequence[AclFilter]) -> list[list[Acl]]: ...


class AclHandlers:
    """Each entry of a request for itself: one that is refused does not hurt the others."""

    def __init__(self, lists: Lists) -> None:
        self._lists = lists

    async def describe_acls(self, request: Any, call: KafkaCall) -> Any:
        try:
            found = await self._lists.described(as_filter(request))
        except ValueError as error:
            return struct("DescribeAclsResponse")(error_code=INVALID_REQUEST, error_message=str(error))
        return await here_or_off_the_loop(lambda: described(found, call.api_version), len(found))

    async def create_acls(self, request: Any, call: KafkaCall) -> Any:
        rows, heavy = request.creations, ROW * len(request.creations)
        asked = await here_or_off_the_loop(lambda: [entry_of(each) for each in rows], heavy)
        failure = await self._created([each for each in asked if isinstance(each, Acl)])
        return await here_or_off_the_loop(lambda: created(asked, failure, call.api_version), heavy)

    async def _created(self, acls: Sequence[Acl]) -> tuple[int, str | None]:
        try:
            await self._lists.create(acls)
        except ValueError as full:
            return POLICY_VIOLATION, str(full)
        except StorageError as error:
            return failure_of(error), str(error)
        return 0, None

    async def delete_acls(self, request: Any, call: KafkaCall) -> Any:
        asked = [filter_or_refusal(each) for each in request.filters]
        made = struct("DeleteAclsResponse.filter_results")
        failure: dict[str, Any] = {}
        gone: list[list[Acl]] = []
        good = [each for each in asked if isinstance(each, AclFilter)]
        try:
            gone = await self._lists.delete(good)
        except StorageError as error:
            failure = {"error_code": failure_of(error), "error_message": str(error)}
        matching = iter(gone or [[]] * len(good))

        def answer() -> Written:
            rows = []
            for each in asked:
                if isinstance(each, ValueError):
                    rows.append(made(error_code=INVALID_REQUEST, error_message=str(each)))
                else:
                    rows.append(made(matching_acls=[deleted(acl) for acl in next(matching)], **failure))
            whole = struct("DeleteAclsResponse")(filter_results=rows)
            return Written(encode("DeleteAclsResponse", call.api_version, whole))

        return await here_or_off_the_loop(answer, sum(map(len, gone)))


def failure_of(error: StorageError) -> int:
    """Of what was not, or may not have been, for the moment, clients hear that; they may try again."""
    return error.code if error.code in MOMENTARY else FAILED


def created(asked: Sequence[Acl | ValueError], failure: tuple[int, str | None], version: int) -> Written:
    made = struct("CreateAclsResponse.results")
    rows = []
    for each in asked:
        code, why = failure if isinstance(each, Acl) else (INVALID_REQUEST, str(each))
        rows.append(made(error_code=code, error_message=why))
    return Written(encode("CreateAclsResponse", version, struct("CreateAclsResponse")(results=rows)))


def entry_of(row: Any) -> Acl | ValueError:
    """What a CreateAcls row asks for, or what speaks against it."""
    try:
        return checked(
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


def as_filter(row: Any) -> AclFilter:
    """Raises ValueError."""
    return filter_of(
        row.resource_type_filter,
        row.pattern_type_filter,
        row.resource_name_filter,
        row.principal_filter,
        row.host_filter,
        row.operation,
        row.permission_type,
    )


def filter_or_refusal(row: Any) -> AclFilter | ValueError:
    try:
        return as_filter(row)
    except ValueError as refusal:
        return refusal


def described(acls: Sequence[Acl], version: int) -> Written:
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
    return Written(encode("DescribeAclsResponse", version, struct("DescribeAclsResponse")(resources=rows)))


def deleted(acl: Acl) -> Any:
    return struct("DeleteAclsResponse.filter_results.matching_acls")(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
