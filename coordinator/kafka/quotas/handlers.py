"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from muster.coordinator.edge.positions import here_or_off_the_loop
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import KafkaCall, Written
from muster.coordinator.security.facts import QuotaEntity
from muster.coordinator.security.quotas.checks import BadQuota

SECURITY_DISABLED: Final = 54
NONE_KEPT: Final = "this node keeps no quotas: it runs with authorizer=none; quotas take authorizer=acl"


ROW: Final = 5
"""An entry takes so many times as long as a position does."""

Wanted: TypeAlias = tuple[Sequence[tuple[str, str | None]], Sequence[tuple[str, float | None]]]
"""Whose, and what it is to have."""


class Book(Protocol):
    """The quotas that are set."""

    async def matching(
        self, wanted: Sequence[tuple[str, int, str | None]], *, strict: bool
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]: ...

    async def alter(
        self,
        wanted: Sequence[Wanted],
        *,
        validate_only: bool,
    ) -> list[str]: ...


class QuotaHandlers:
    """`book` is None on a node that keeps none."""

    def __init__(self, book: Book | None) -> None:
        self._book = book

    async def describe_client_quotas(self, request: Any, call: KafkaCall) -> Any:
        made = struct("DescribeClientQuotasResponse")
        if self._book is None:
            return made(error_code=SECURITY_DISABLED, error_message=NONE_KEPT, entries=None)
        wanted = [(each.entity_type, each.match_type, each.match) for each in request.components]
        try:
            found = await self._book.matching(wanted, strict=request.strict)
        except BadQuota as error:
            return made(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entries=None)
        return await here_or_off_the_loop(lambda: described(found, call.api_version), ROW * len(found))

    async def alter_client_quotas(self, request: Any, call: KafkaCall) -> Any:
        heavy = ROW * len(request.entries)
        wanted = await here_or_off_the_loop(lambda: [wanted_of(each) for each in request.entries], heavy)
        code: int = ErrorCode.INVALID_REQUEST
        if self._book is None:
            code, told = SECURITY_DISABLED, [NONE_KEPT] * len(wanted)
        else:
            try:
                told = await self._book.alter(wanted, validate_only=request.validate_only)
            except CoordinatorError as error:
                code, told = error.code, [error.message] * len(wanted)
        return await here_or_off_the_loop(lambda: altered(told, wanted, code, call.api_version), heavy)


def wanted_of(entry: Any) -> Wanted:
    return (
        [(part.entity_type, part.entity_name) for part in entry.entity],
        [(op.key, None if op.remove else op.value) for op in entry.ops],
    )


def described(found: Sequence[tuple[QuotaEntity, Mapping[str, float]]], version: int) -> Written:
    path = "DescribeClientQuotasResponse"
    entry, value, part = struct(f"{path}.entries"), struct(f"{path}.entries.values"), struct(f"{path}.entries.entity")
    entries = [
        entry(
            entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[value(key=key, value=float(figure)) for key, figure in sorted(figures.items())],
        )
        for entity, figures in found
    ]
    return Written(encode(path, version, struct(path)(entries=entries)))


def altered(told: Sequence[str], wanted: Sequence[Wanted], code: int, version: int) -> Written:
    path = "AlterClientQuotasResponse"
    made, part = struct(f"{path}.entries"), struct(f"{path}.entries.entity")
    entries = [
        made(
            error_code=code if why else ErrorCode.NONE,
            error_message=why or None,
            entity=[part(entity_type=kind, entity_name=name) for kind, name in parts],
        )
        for why, (parts, _) in zip(told, wanted, strict=True)
    ]
    return Written(encode(path, version, struct(path)(entries=entries)))
