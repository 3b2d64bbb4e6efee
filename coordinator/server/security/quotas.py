"""The Quotas service: what is set, and changes of it. No transport here."""

from collections.abc import Mapping, Sequence
from typing import Final

from muster.coordinator.edge.positions import run_off_loop_if_large
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.rpc.v1 import quota_service_pb2 as pb
from muster.coordinator.security.checks import ANY, DEFAULT, EXACT, InvalidQuota
from muster.coordinator.security.facts import QuotaEntity
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.security.quota_book import Alteration, ConfiguredQuotas
from muster.coordinator.server.services.answers import to_error_code

ROW: Final = 5
"""An entry takes so many times as long as a position does."""


class QuotaService:
    def __init__(self, book: ConfiguredQuotas) -> None:
        self._book = book

    async def describe_quotas(self, request: pb.DescribeQuotasRequest, call: RpcCall) -> pb.DescribeQuotasResponse:
        wanted = [
            (each.type, parse_quota_match(each), each.name if each.HasField("name") else None)
            for each in request.components
        ]
        answer = pb.DescribeQuotasResponse()
        try:
            found = await self._book.matching(wanted, strict=request.strict)
        except InvalidQuota as error:
            answer.error_code, answer.error_message = to_error_code(ErrorCode.INVALID_REQUEST), str(error)
            return answer
        return await run_off_loop_if_large(lambda: build_described_quotas(answer, found), ROW * len(found))

    async def alter_quotas(self, request: pb.AlterQuotasRequest, call: RpcCall) -> pb.AlterQuotasResponse:
        heavy = ROW * len(request.entries)
        wanted = await run_off_loop_if_large(lambda: [parse_alteration(each) for each in request.entries], heavy)
        code: ErrorCode = ErrorCode.INVALID_REQUEST
        try:
            told = await self._book.alter(wanted, validate_only=request.validate_only)
        except CoordinatorError as error:
            code, told = error.code, [error.message] * len(wanted)
        answer = pb.AlterQuotasResponse()
        for why in told:
            answer.results.add(error_code=to_error_code(code if why else ErrorCode.NONE), error_message=why)
        return answer


def parse_alteration(entry: pb.QuotaAlteration) -> Alteration:
    return (
        [(part.type, part.name if part.HasField("name") else None) for part in entry.entity],
        [*entry.set.items(), *((name, None) for name in entry.unset)],
    )


def build_described_quotas(
    answer: pb.DescribeQuotasResponse, found: Sequence[tuple[QuotaEntity, Mapping[str, float]]]
) -> pb.DescribeQuotasResponse:
    for entity, figures in found:
        entry = answer.entries.add(values=figures)
        for kind, name in entity:
            entry.entity.add(type=kind, name=name)
    return answer


def parse_quota_match(wanted: pb.QuotaFilter) -> int:
    if wanted.is_default:
        return DEFAULT
    return EXACT if wanted.HasField("name") else ANY
