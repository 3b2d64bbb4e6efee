"""`muster engine adopt` and `release_group`: groups move between that Kafka's own coordinator and Muster."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import CommandError, Exit, print_error
from muster.cli.common.options import bootstrap_option, current_command_config, output_option
from muster.cli.common.output import columns, notice, print_rows
from muster.cli.engine import await_upstream_work, load_engine_settings, upstream_options
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.client.aio import AsyncAdmin
    from muster.client.described import GroupDescription
    from muster.coordinator.config import Settings
    from muster.coordinator.kafka_backend.offset_migration import MovedOffsets
    from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamOffset
    from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

MOVE_COLUMNS = columns("GROUP:cyan, TOPIC, PARTITION, OFFSET, LEADER-EPOCH+, METADATA+")
STAY = "; {} in topics that are no more left where they are"
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be moved, and change nothing.")


@click.command()
@bootstrap_option
@upstream_options
@output_option
@DRY_RUN
@click.option("--all", "pattern", metavar="PATTERN", help="All groups in that Kafka whose whole id matches (RE2).")
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
def adopt(
    bootstrap: str,
    engine: str | None,
    file: Path | None,
    given: dict[str, str],
    style: str,
    dry_run: bool,
    pattern: str | None,
    groups: Sequence[str],
) -> int:
    """Move groups from that Kafka to Muster, with their positions.

    A group must have no members, there or here; otherwise exit code 5 and the members (with --all, other groups are
    moved nevertheless). Its positions in that Kafka stay. Positions in deleted topics are not moved.
    """
    if bool(groups) == (pattern is not None):
        raise click.UsageError("name groups, or say --all PATTERN")
    settings = load_engine_settings(engine, file, given)
    left: list[str] = []

    async def work(upstream: "Upstream", here: "AdminGroups") -> "list[MovedOffsets]":
        from muster.coordinator.kafka_backend.offset_migration import MoveBlocked, adopt_group
        from muster.coordinator.kafka_backend.upstream.topic_requests import fetch_all_topics
        from muster.coordinator.kafka_backend.upstream.upstream_client import UpstreamMetadata

        told = await fetch_all_topics(upstream, UpstreamMetadata())
        assert told is not None, "nothing was asked before"
        topics = {name: topic.partitions for name, topic in told.topics.items()}
        if pattern is None:
            return [await adopt_group(upstream, group, here, topics, dry_run=dry_run) for group in groups]
        moved = []
        for group in await find_matching_groups(upstream, pattern):
            try:
                moved.append(await adopt_group(upstream, group, here, topics, dry_run=dry_run))
            except MoveBlocked as error:
                left.append(str(error))
        return moved

    report_moves(move_groups(settings, bootstrap, work), style, "would be adopted" if dry_run else "adopted")
    for sentence in left:
        print_error(sentence)
    return Exit.CONFLICT if left else Exit.OK


@click.command()
@bootstrap_option
@upstream_options
@output_option
@DRY_RUN
@click.argument("group")
def release(
    bootstrap: str,
    engine: str | None,
    file: Path | None,
    given: dict[str, str],
    style: str,
    dry_run: bool,
    group: str,
) -> None:
    """Move GROUP back to that Kafka, with its positions.

    The group is deleted here. It must have no members, here or there. The next client that connects through Muster
    adopts it again: give its clients the brokers' own addresses before they start.
    """
    settings = load_engine_settings(engine, file, given)

    async def work(upstream: "Upstream", here: "AdminGroups") -> "list[MovedOffsets]":
        from muster.coordinator.kafka_backend.offset_migration import release_group

        return [await release_group(upstream, group, here, dry_run=dry_run)]

    report_moves(move_groups(settings, bootstrap, work), style, "would be released" if dry_run else "released")


def move_groups(settings: "Settings", bootstrap: str, work: Any) -> "list[MovedOffsets]":
    """Do it with both ends at hand."""
    from muster.cli.common.options import ONE_SHOT_PATIENCE_MS, client_properties, require_listener
    from muster.client.aio import AsyncAdmin
    from muster.client.twins import shared_loop

    client = client_properties(bootstrap, current_command_config(), default_api_timeout_ms=ONE_SHOT_PATIENCE_MS)

    async def both() -> "list[MovedOffsets]":
        async with AsyncAdmin(client) as admin:
            require_listener(bootstrap, current_command_config())
            here = AdminGroups(admin)
            return await await_upstream_work(settings, lambda upstream: work(upstream, here))

    return shared_loop().run(both())


class AdminGroups:
    """`adopt_group.Here`, of the Muster that an Admin asks."""

    def __init__(self, admin: "AsyncAdmin") -> None:
        self._admin = admin

    async def _described(self, group: str) -> "GroupDescription | None":
        from muster.client.errors import Refused
        from muster.coordinator.kafka_backend.upstream.group_requests import GROUP_NOT_FOUND

        try:
            return await self._admin.describe_group(group)
        except Refused as error:
            if error.code == GROUP_NOT_FOUND:
                return None
            raise

    async def members(self, group: str) -> Sequence[str]:
        told = await self._described(group)
        members = () if told is None else told.members
        return [f"{member.client_id or member.member_id} at {member.client_host}" for member in members]

    async def positions(self, group: str) -> "Mapping[tuple[str, int], UpstreamOffset]":
        from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamOffset

        if await self._described(group) is None:
            return {}  # to be asked for its positions would have it adopted at once (KB-M2)
        kept = await self._admin.group_offsets(group, include_zookeeper=False)
        return {
            (tp.topic, tp.partition): UpstreamOffset(at.offset, at.leader_epoch, at.metadata) for tp, at in kept.items()
        }

    async def commit(self, group: str, positions: "Mapping[tuple[str, int], UpstreamOffset]") -> None:
        from muster.client.types import OffsetAndMetadata
        from muster.coordinator.kafka_backend.offset_migration import ADOPTED

        given = {
            place: OffsetAndMetadata(each.offset, each.metadata, each.leader_epoch) for place, each in positions.items()
        }
        await self._admin.alter_offsets(group, given, reason=ADOPTED)

    async def delete(self, group: str) -> None:
        from muster.coordinator.kafka_backend.offset_migration import RELEASED

        await self._admin.delete_groups([group], reason=RELEASED)


async def find_matching_groups(upstream: "Upstream", pattern: str) -> list[str]:
    """Groups of that Kafka, of consumers, with nobody in them."""
    from muster.coordinator.core.model.rights import compile_pattern
    from muster.coordinator.kafka_backend.foreign_member_guard import KINDS, OWN_PROTOCOL
    from muster.coordinator.kafka_backend.upstream.group_requests import list_groups

    try:
        wanted = compile_pattern(pattern)
    except ValueError as error:
        raise CommandError(
            f"--all {pattern!r} is not a regular expression: {error}",
            "expected RE2 syntax, such as 'orders-.*'",
            code=Exit.USAGE,
        ) from error
    await upstream.refresh([])
    found = [each for broker in sorted(upstream.view.brokers) for each in await list_groups(upstream, broker)]
    return sorted(
        {
            each.group
            for each in found
            if each.kind.lower() in KINDS and each.protocol_type != OWN_PROTOCOL and wanted.fullmatch(each.group)
        }
    )


def report_moves(moved: "Sequence[MovedOffsets]", style: str, done: str) -> None:
    rows = [
        {
            "group": each.group,
            "topic": topic,
            "partition": partition,
            "offset": position.offset,
            "leader_epoch": position.leader_epoch,
            "metadata": position.metadata,
        }
        for each in moved
        for (topic, partition), position in sorted(each.positions.items())
    ]
    print_rows(rows, MOVE_COLUMNS, style)
    for each in moved:
        left = len(each.without_topic)
        notice(f"{each.group}: {plural(len(each.positions), 'position')} {done}{STAY.format(left) if left else ''}")
