"""The Quotas service: what is set, and changes of it. No transport here."""

from collections.abc import Mapping, Sequence
from typing import Final

from muster.coordinator.edge.positions import here_or_off_the_loop
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.rpc.v1 import quota_service_pb2 as pb
from muster.coordinator.security.facts import QuotaEntity
from muster.coordinator.security.quotas.checks import ANY, DEFAULT, EXACT, BadQuota
from muster.coordinator.server.dispatch import Call
from muster.coordinator.server.messages.answers import error_code
from muster.coordinator.server.security.quota_book import Alteration, QuotaBook

ROW: Final = 5
"""An entry takes so many times as long as a position does."""


class Quotas:
    def __init__(self, book: QuotaBook) -> None:
        self._book = book

    async def describe_quotas(self, request: pb.DescribeQuotasRequest, call: Call) -> pb.DescribeQuotasResponse:
        wanted = [
            (each.type, match_of(each), each.name if each.HasField("name") else None) for each in request.components
        ]
        answer = pb.DescribeQuotasResponse()
        try:
            found = await self._book.matching(wanted, strict=request.strict)
        except BadQuota as error:
            answer.error_code, answer.error_message = error_code(ErrorCode.INVALID_REQUEST), str(error)
            return answer
        return await here_or_off_the_loop(lambda: described(answer, found), ROW * len(found))

    async def alter_quotas(self, request: pb.AlterQuotasRequest, call: Call) -> pb.AlterQuotasResponse:
        heavy = ROW * len(request.entries)
        wanted = await here_or_off_the_loop(lambda: [alteration(each) for each in request.entries], heavy)
        code: ErrorCode = ErrorCode.INVALID_REQUEST
        try:
            told = await self._book.alter(wanted, validate_only=request.validate_only)
        except CoordinatorError as error:
            code, told = error.code, [error.message] * len(wanted)
        answer = pb.AlterQuotasResponse()
        for why in told:
            answer.results.add(error_code=error_code(code if why else ErrorCode.NONE), error_message=why)
        return answer


def alteration(entry: pb.QuotaAlteration) -> Alteration:
    return (
        [(part.type, part.name if part.HasField("name") else None) for part in entry.entity],
        [*entry.set.items(), *((name, None) for name in entry.unset)],
    )


def described(
    answer: pb.DescribeQuotasResponse, found: Sequence[tuple[QuotaEntity, Mapping[str, float]]]
) -> pb.DescribeQuotasResponse:
    for entity, figures in found:
        entry = answer.entries.add(values=figures)
        for kind, name in entity:
            entry.entity.add(type=kind, name=name)
    return answer


def match_of(wanted: pb.QuotaFilter) -> int:
    if wanted.is_default:
        return DEFAULT
    return EXACT if wanted.HasField("name") else ANY
