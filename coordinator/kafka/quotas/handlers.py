"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.security.facts import QuotaEntity
from muster.coordinator.security.quotas.checks import BadQuota
from muster.storage.errors import StorageError

SECURITY_DISABLED: Final = 54
NONE_KEPT: Final = "this node keeps no quotas: it runs with authorizer=none; quotas take authorizer=acl"


class Book(Protocol):
    """The quotas that are set."""

    def matching(
        self, wanted: Sequence[tuple[str, int, str | None]], *, strict: bool
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]: ...

    async def alter(
        self,
        wanted: Sequence[tuple[Sequence[tuple[str, str | None]], Sequence[tuple[str, float | None]]]],
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
            found = self._book.matching(wanted, strict=request.strict)
        except BadQuota as error:
            return made(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entries=None)
        entry, value = (
            struct("DescribeClientQuotasResponse.entries"),
            struct("DescribeClientQuotasResponse.entries.values"),
        )
        part = struct("DescribeClientQuotasResponse.entries.entity")
        entries = [
            entry(
                entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[value(key=key, value=float(figure)) for key, figure in sorted(figures.items())],
            )
            for entity, figures in found
        ]
        return made(entries=entries)

    async def alter_client_quotas(self, request: Any, call: KafkaCall) -> Any:
        wanted = [
            (
                [(part.entity_type, part.entity_name) for part in each.entity],
                [(op.key, None if op.remove else op.value) for op in each.ops],
            )
            for each in request.entries
        ]
        code: int = ErrorCode.INVALID_REQUEST
        if self._book is None:
            code, told = SECURITY_DISABLED, [NONE_KEPT] * len(wanted)
        else:
            try:
                told = await self._book.alter(wanted, validate_only=request.validate_only)
            except StorageError as error:
                code, told = ErrorCode.UNKNOWN_SERVER_ERROR, [str(error)] * len(wanted)
        made, part = struct("AlterClientQuotasResponse.entries"), struct("AlterClientQuotasResponse.entries.entity")
        return struct("AlterClientQuotasResponse")(
            entries=[
                made(
                    error_code=code if why else ErrorCode.NONE,
                    error_message=why or None,
                    entity=[part(entity_type=kind, entity_name=name) for kind, name in parts],
                )
                for why, (parts, _) in zip(told, wanted, strict=True)
            ]
        )
