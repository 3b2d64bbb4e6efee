"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from muster.coordinator.edge.positions import run_off_loop_if_large
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall
from muster.coordinator.security.checks import InvalidQuota
from muster.coordinator.security.facts import QuotaEntity

SECURITY_DISABLED: Final = 54
NONE_KEPT: Final = "this node keeps no quotas: it runs with authorizer=none; quotas take authorizer=acl"


QUOTA_ROW_WEIGHT: Final = 5
"""An entry takes so many times as long as a position does."""

QuotaAlteration: TypeAlias = tuple[Sequence[tuple[str, str | None]], Sequence[tuple[str, float | None]]]
"""Whose, and what it is to have."""


class QuotaRepository(Protocol):
    """The quotas that are set."""

    async def matching(
        self, wanted: Sequence[tuple[str, int, str | None]], *, strict: bool
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]: ...

    async def alter(
        self,
        wanted: Sequence[QuotaAlteration],
        *,
        validate_only: bool,
    ) -> list[str]: ...


class QuotaHandlers:
    """`book` is None on a node that keeps none."""

    def __init__(self, book: QuotaRepository | None) -> None:
        self._book = book

    async def describe_client_quotas(self, request: Any, call: KafkaCall) -> Any:
        made = struct("DescribeClientQuotasResponse")
        if self._book is None:
            return made(error_code=SECURITY_DISABLED, error_message=NONE_KEPT, entries=None)
        wanted = [(each.entity_type, each.match_type, each.match) for each in request.components]
        try:
            found = await self._book.matching(wanted, strict=request.strict)
        except InvalidQuota as error:
            return made(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entries=None)
        return await run_off_loop_if_large(
            lambda: make_quotas_response(found, call.api_version), QUOTA_ROW_WEIGHT * len(found)
        )

    async def alter_client_quotas(self, request: Any, call: KafkaCall) -> Any:
        heavy = QUOTA_ROW_WEIGHT * len(request.entries)
        wanted = await run_off_loop_if_large(lambda: [parse_alteration(each) for each in request.entries], heavy)
        code: int = ErrorCode.INVALID_REQUEST
        if self._book is None:
            code, told = SECURITY_DISABLED, [NONE_KEPT] * len(wanted)
        else:
            try:
                told = await self._book.alter(wanted, validate_only=request.validate_only)
            except CoordinatorError as error:
                code, told = error.code, [error.message] * len(wanted)
        return await run_off_loop_if_large(
            lambda: make_alter_quotas_response(told, wanted, code, call.api_version), heavy
        )


def parse_alteration(entry: Any) -> QuotaAlteration:
    return (
        [(part.entity_type, part.entity_name) for part in entry.entity],
        [(op.key, None if op.remove else op.value) for op in entry.ops],
    )


def make_quotas_response(found: Sequence[tuple[QuotaEntity, Mapping[str, float]]], version: int) -> EncodedAnswer:
    path = "DescribeClientQuotasResponse"
    entry, value, part = struct(f"{path}.entries"), struct(f"{path}.entries.values"), struct(f"{path}.entries.entity")
    entries = [
        entry(
            entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[value(key=key, value=float(figure)) for key, figure in sorted(figures.items())],
        )
        for entity, figures in found
    ]
    return EncodedAnswer(encode(path, version, struct(path)(entries=entries)))


def make_alter_quotas_response(
    told: Sequence[str], wanted: Sequence[QuotaAlteration], code: int, version: int
) -> EncodedAnswer:
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
    return EncodedAnswer(encode(path, version, struct(path)(entries=entries)))
