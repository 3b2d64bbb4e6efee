"""The admin client's control of running groups: freeze, deploy, drain, pin, and canaries of another assignor
(docs/control.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from muster.client.calls import methods
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.methods import ClientMethod
from muster.client.calls.transport import Transport
from muster.client.described import Canary, GroupHolds, HoldResult
from muster.coordinator.observability.read_model.group_mapper import (
    BY_NAME,
    ORPHANS_OF,
    map_canary,
    map_forecast_moves,
    map_holds,
)
from muster.coordinator.rpc.v1 import control_service_pb2 as pb

# Freeze, deploy, drain and pin
# -----------------------------

By = Literal["member-id", "client-id", "instance", "host"]
OverrideRequest: TypeAlias = pb.HoldGroupRequest | pb.ResumeGroupRequest
OverrideMethod: TypeAlias = ClientMethod[Any, Any]


class GroupControlCalls:
    """The overrides of a group, as part of the admin client. Every call shares these arguments:

    `for_ms`: the override ends after so long. `expected_version`: only if the overrides are at that version (0: there
    are none), else Refused. `validate_only`: report what would change, and change nothing. `reason` is kept in the
    ledger.
    """

    _transport: Transport

    async def group_holds(self, group: str) -> GroupHolds:
        """Return the overrides of the group; an unknown group has none."""
        calls = GroupCalls(self._transport, group)
        request = pb.DescribeHoldsRequest(group_id=group)
        answer = await calls.once(methods.DESCRIBE_HOLDS, request, f"looking at what is held of {group!r}")
        return map_holds(answer.holds)

    async def freeze_group(
        self,
        group: str,
        orphans: Literal["", "give", "keep"] = "",
        *,
        for_ms: int | None = None,
        expected_version: int | None = None,
        validate_only: bool = False,
        reason: str = "",
    ) -> HoldResult:
        """Freeze the group: no live member loses a partition, and new members get none, until it is resumed.

        `orphans`: a partition that loses its owner goes to the member with the least ("give"), or stays without one
        ("keep"). "" means the first, or the second where the members make their own plans.
        """
        request = pb.HoldGroupRequest(group_id=group, for_ms=for_ms, freeze=pb.Freeze(orphans=ORPHANS_OF[orphans]))
        return await self._override(methods.HOLD_GROUP, request, expected_version, validate_only, reason)

    async def deploy_group(
        self,
        group: str,
        expect: int,
        *,
        for_ms: int | None = None,
        expected_version: int | None = None,
        validate_only: bool = False,
        reason: str = "",
    ) -> HoldResult:
        """Keep the partitions of members that restart for the next member that comes, until `expect` have come back."""
        request = pb.HoldGroupRequest(group_id=group, for_ms=for_ms, deploy=pb.Deploy(expect=expect))
        return await self._override(methods.HOLD_GROUP, request, expected_version, validate_only, reason)

    async def drain_member(
        self,
        group: str,
        name: str,
        by: By = "member-id",
        *,
        for_ms: int | None = None,
        expected_version: int | None = None,
        validate_only: bool = False,
        reason: str = "",
    ) -> HoldResult:
        """Move all partitions away from a member; it stays in the group without any, across restarts."""
        request = pb.HoldGroupRequest(group_id=group, for_ms=for_ms, drain=pb.Drain(by=BY_NAME[by], name=name))
        return await self._override(methods.HOLD_GROUP, request, expected_version, validate_only, reason)

    async def pin_partition(
        self,
        group: str,
        topic: str,
        partition: int,
        name: str,
        *,
        for_ms: int | None = None,
        expected_version: int | None = None,
        validate_only: bool = False,
        reason: str = "",
    ) -> HoldResult:
        """Pin a partition to the member with this instance id, client id or member id, for as long as it lives."""
        request = pb.HoldGroupRequest(
            group_id=group, for_ms=for_ms, pin=pb.Pin(topic=topic, partition=partition, name=name)
        )
        return await self._override(methods.HOLD_GROUP, request, expected_version, validate_only, reason)

    async def resume_group(
        self,
        group: str,
        what: Literal["", "freeze", "deploy"] = "",
        *,
        expected_version: int | None = None,
        validate_only: bool = False,
        reason: str = "",
    ) -> HoldResult:
        """End the freeze or the deploy; "" ends all overrides of the group."""
        request = pb.ResumeGroupRequest(group_id=group)
        if what:
            setattr(request, what, True)
        return await self._override(methods.RESUME_GROUP, request, expected_version, validate_only, reason)

    async def undrain_member(
        self,
        group: str,
        name: str,
        by: By = "member-id",
        *,
        expected_version: int | None = None,
        validate_only: bool = False,
        reason: str = "",
    ) -> HoldResult:
        """Let a drained member own partitions again."""
        request = pb.ResumeGroupRequest(group_id=group, drain=pb.Drain(by=BY_NAME[by], name=name))
        return await self._override(methods.RESUME_GROUP, request, expected_version, validate_only, reason)

    async def unpin_partition(
        self,
        group: str,
        topic: str,
        partition: int,
        *,
        expected_version: int | None = None,
        validate_only: bool = False,
        reason: str = "",
    ) -> HoldResult:
        """Unpin a partition; it stays where it is until a plan moves it."""
        request = pb.ResumeGroupRequest(group_id=group, pin=pb.Pin(topic=topic, partition=partition))
        return await self._override(methods.RESUME_GROUP, request, expected_version, validate_only, reason)

    async def _override(
        self, method: OverrideMethod, request: OverrideRequest, version: int | None, validate_only: bool, reason: str
    ) -> HoldResult:
        if version is not None:
            request.expected_version = version
        request.validate_only, request.reason = validate_only, reason
        doing = f"{'holding' if method is methods.HOLD_GROUP else 'resuming'} group {request.group_id!r}"
        answer = await GroupCalls(self._transport, request.group_id).once(method, request, doing)
        return HoldResult(answer.sentence, map_holds(answer.holds), map_forecast_moves(answer))


# Canaries
# --------


class CanaryCalls:
    """Part of the admin client."""

    _transport: Transport

    async def canary(self, group: str) -> Canary | None:
        """The group's canary, running or over; None: it never had one."""
        calls = GroupCalls(self._transport, group)
        request = pb.DescribeCanaryRequest(group_id=group)
        answer = await calls.once(methods.DESCRIBE_CANARY, request, f"looking at the canary of {group!r}")
        return map_canary(answer.canary) if answer.HasField("canary") else None

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
        held against and what would move, and change nothing. Refused while another one runs.
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
        return replace(map_canary(answer.canary), moves=map_forecast_moves(answer))

    async def end_canary(self, group: str, *, promote: bool, reason: str = "") -> Canary:
        """Promote the candidate, or roll it back. Refused when none runs."""
        request = pb.EndCanaryRequest(group_id=group, promote=promote, reason=reason)
        calls = GroupCalls(self._transport, group)
        answer = await calls.once(methods.END_CANARY, request, f"ending the canary of {group!r}")
        return map_canary(answer.canary)
