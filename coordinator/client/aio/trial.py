"""What the admin client does with canaries: another assignor on trial."""

from collections.abc import Sequence

from muster.coordinator.client.calls import methods
from muster.coordinator.client.calls.controls import canary_of
from muster.coordinator.client.calls.transport import Transport
from muster.coordinator.client.described import Canary
from muster.coordinator.client.membership.group_calls import GroupCalls, check
from muster.coordinator.rpc.v1 import control_service_pb2 as pb


class Trial:
    """Part of the admin client."""

    _transport: Transport

    async def canary(self, group: str) -> Canary | None:
        """The group's canary, running or over; None: it never had one."""
        address = await GroupCalls(self._transport, group).coordinator()
        answer = await self._transport.call(
            methods.DESCRIBE_CANARY,
            pb.DescribeCanaryRequest(group_id=group),
            doing=f"looking at the canary of {group!r}",
            address=address,
        )
        check(answer.error_code, answer.error_message, group)
        return canary_of(answer.canary) if answer.HasField("canary") else None

    async def start_canary(
        self,
        group: str,
        assignor: str,
        for_ms: int,
        *,
        guards: Sequence[str] = (),
        lag_floor: int | None = None,
        wait: bool = False,
        validate_only: bool = False,
        reason: str = "",
    ) -> Canary:
        """Have `assignor` (NAME, or NAME{"option": value}) plan the group for so long, unless a guard trips.

        Then it is the group's setting; with `wait` it goes on until `end_canary`. `validate_only`: say what it would be
        held against, and change nothing. Refused while another one runs.
        """
        request = pb.StartCanaryRequest(
            group_id=group,
            assignor=assignor,
            for_ms=for_ms,
            guards=guards,
            lag_floor=lag_floor,
            wait=wait,
            validate_only=validate_only,
            reason=reason,
        )
        address = await GroupCalls(self._transport, group).coordinator()
        answer = await self._transport.call(
            methods.START_CANARY, request, doing=f"starting a canary in {group!r}", address=address
        )
        check(answer.error_code, answer.error_message, group)
        return canary_of(answer.canary)

    async def end_canary(self, group: str, *, promote: bool, reason: str = "") -> Canary:
        """Promote the candidate, or roll it back. Refused when none runs."""
        request = pb.EndCanaryRequest(group_id=group, promote=promote, reason=reason)
        address = await GroupCalls(self._transport, group).coordinator()
        answer = await self._transport.call(
            methods.END_CANARY, request, doing=f"ending the canary of {group!r}", address=address
        )
        check(answer.error_code, answer.error_message, group)
        return canary_of(answer.canary)
