"""What an admin client says of quotas."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from muster.client.calls import methods
from muster.client.calls.group_calls import check_code
from muster.client.calls.transport import Transport
from muster.coordinator.rpc.v1 import quota_service_pb2 as quota_pb

Entity: TypeAlias = Mapping[str, str | None]
"""Names by type (user, client-id, ip); None: the default of the type."""


class QuotaCalls:
    """A part of `Admin`."""

    _transport: Transport

    async def quotas(
        self, entity: Entity | None = None, *, any_of: Sequence[str] = (), strict: bool = False
    ) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """What is set: of all, or of entities that have these parts, and some name of each type in `any_of`.

        `strict`: and no other type.
        """
        request = quota_pb.DescribeQuotasRequest(strict=strict)
        for kind, name in (entity or {}).items():
            request.components.add(type=kind, name=name, is_default=name is None)
        for kind in any_of:
            request.components.add(type=kind)
        answer = await self._transport.retried(methods.DESCRIBE_QUOTAS, request, doing="looking at quotas")
        check_code(answer.error_code, answer.error_message)
        return [
            ({part.type: part.name if part.HasField("name") else None for part in entry.entity}, dict(entry.values))
            for entry in answer.entries
        ]

    async def alter_quotas(
        self,
        entity: Entity,
        set: Mapping[str, float] | None = None,
        unset: Sequence[str] = (),
        *,
        validate_only: bool = False,
    ) -> None:
        """Set figures by their names, or take them away. In force on return. Raises Refused."""
        request = quota_pb.AlterQuotasRequest(validate_only=validate_only)
        line = request.entries.add(set=set or {}, unset=unset)
        for kind, name in entity.items():
            line.entity.add(type=kind, name=name)
        answer = await self._transport.call(methods.ALTER_QUOTAS, request, doing="changing quotas")
        check_code(answer.error_code, answer.error_message)
        for result in answer.results:
            check_code(result.error_code, result.error_message)
