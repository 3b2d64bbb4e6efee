"""The Quotas service: what is set, and changes of it. No transport here."""

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import quota_service_pb2 as pb
from muster.coordinator.security.quotas.checks import ANY, DEFAULT, EXACT, BadQuota
from muster.coordinator.server.dispatch import Call
from muster.coordinator.server.messages.answers import error_code
from muster.coordinator.server.security.quota_book import QuotaBook


class Quotas:
    def __init__(self, book: QuotaBook) -> None:
        self._book = book

    async def describe_quotas(self, request: pb.DescribeQuotasRequest, call: Call) -> pb.DescribeQuotasResponse:
        wanted = [
            (each.type, match_of(each), each.name if each.HasField("name") else None) for each in request.components
        ]
        answer = pb.DescribeQuotasResponse()
        try:
            found = self._book.matching(wanted, strict=request.strict)
        except BadQuota as error:
            answer.error_code, answer.error_message = error_code(ErrorCode.INVALID_REQUEST), str(error)
            return answer
        for entity, figures in found:
            entry = answer.entries.add(values=figures)
            for kind, name in entity:
                entry.entity.add(type=kind, name=name)
        return answer

    async def alter_quotas(self, request: pb.AlterQuotasRequest, call: Call) -> pb.AlterQuotasResponse:
        wanted = [
            (
                [(part.type, part.name if part.HasField("name") else None) for part in each.entity],
                [*each.set.items(), *((name, None) for name in each.unset)],
            )
            for each in request.entries
        ]
        answer = pb.AlterQuotasResponse()
        for why in await self._book.alter(wanted, validate_only=request.validate_only):
            answer.results.add(
                error_code=error_code(ErrorCode.INVALID_REQUEST if why else ErrorCode.NONE), error_message=why
            )
        return answer


def match_of(wanted: pb.QuotaFilter) -> int:
    if wanted.is_default:
        return DEFAULT
    return EXACT if wanted.HasField("name") else ANY
