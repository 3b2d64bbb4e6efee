"""What the admin client does with canaries: another assignor on trial."""

from collections.abc import Sequence

from muster.client.aio.controls import read_canary
from muster.client.calls import methods
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.described import Canary
from muster.coordinator.rpc.v1 import control_service_pb2 as pb


class CanaryCalls:
    """Part of the admin client."""

    _transport: Transport

    async def canary(self, group: str) -> Canary | None:
        """The group's canary, running or over; None: it never had one."""
        calls = GroupCalls(self._transport, group)
        request = pb.DescribeCanaryRequest(group_id=group)
        answer = await calls.once(methods.DESCRIBE_CANARY, request, f"looking at the canary of {group!r}")
        return read_canary(answer.canary) if answer.HasField("canary") else None

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
        calls = GroupCalls(self._transport, group)
        answer = await calls.once(methods.START_CANARY, request, f"starting a canary in {group!r}")
        return read_canary(answer.canary)

    async def end_canary(self, group: str, *, promote: bool, reason: str = "") -> Canary:
        """Promote the candidate, or roll it back. Refused when none runs."""
        request = pb.EndCanaryRequest(group_id=group, promote=promote, reason=reason)
        calls = GroupCalls(self._transport, group)
        answer = await calls.once(methods.END_CANARY, request, f"ending the canary of {group!r}")
        return read_canary(answer.canary)
