"""`muster engine adopt` and `release`: groups move between that Kafka's own coordinator and Muster."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.coordinator.cli.common.command_config import config_of_this_command
from muster.coordinator.cli.common.errors import CommandError, Exit, complain
from muster.coordinator.cli.common.options import bootstrap_option, output_option
from muster.coordinator.cli.common.output import Column, notice, show
from muster.coordinator.cli.engine.asking import asked, settings_of, upstream_options
from muster.coordinator.views.words import plural

if TYPE_CHECKING:
    from muster.coordinator.client.aio import Admin
    from muster.coordinator.client.described import GroupDescription
    from muster.coordinator.config import Settings
    from muster.coordinator.engine.groups.adopt import Moved
    from muster.coordinator.engine.upstream.groups import Position
    from muster.coordinator.engine.upstream.upstream import Upstream

COLUMNS = [
    Column("GROUP", "group", style="cyan"),
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("OFFSET", "offset"),
    Column("LEADER-EPOCH", "leader_epoch", wide=True),
    Column("METADATA", "metadata", wide=True),
]
STAY = "; {} in topics that are no more left where they are"
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be moved; change nothing.")


@click.command()
@bootstrap_option
@upstream_options
@output_option
@DRY_RUN
@click.option("--all", "pattern", metavar="PATTERN", help="All groups there whose whole id matches (RE2).")
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
    """Take GROUPs over from that Kafka, with what they have committed.

    A group must have no members there, and none here; exit code 5, and who they are, where it has (with --all the
    others are adopted all the same). Its positions there stay as they are. Positions in topics that are no more are
    left there.
    """
    if bool(groups) == (pattern is not None):
        raise click.UsageError("name groups, or say --all PATTERN")
    settings = settings_of(engine, file, given)
    left: list[str] = []

    async def work(upstream: "Upstream", here: "HereByAdmin") -> "list[Moved]":
        from muster.coordinator.engine.groups.adopt import InTheWay, adopt
        from muster.coordinator.engine.upstream.catalog import all_topics
        from muster.coordinator.engine.upstream.view import View

        told = await all_topics(upstream, View())
        assert told is not None, "nothing was asked before"
        topics = {name: topic.partitions for name, topic in told.topics.items()}
        if pattern is None:
            return [await adopt(upstream, group, here, topics, dry_run=dry_run) for group in groups]
        moved = []
        for group in await matching(upstream, pattern):
            try:
                moved.append(await adopt(upstream, group, here, topics, dry_run=dry_run))
            except InTheWay as error:
                left.append(str(error))
        return moved

    tell(moved_by(settings, bootstrap, work), style, "would be adopted" if dry_run else "adopted")
    for sentence in left:
        complain(sentence)
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
    """Give GROUP back to that Kafka, with what it has committed, and forget it here.

    It must have no members, here and there. The next client that comes through Muster has it adopted again: give its
    clients the brokers' own addresses before they are started.
    """
    settings = settings_of(engine, file, given)

    async def work(upstream: "Upstream", here: "HereByAdmin") -> "list[Moved]":
        from muster.coordinator.engine.groups.adopt import release

        return [await release(upstream, group, here, dry_run=dry_run)]

    tell(moved_by(settings, bootstrap, work), style, "would be released" if dry_run else "released")


def moved_by(settings: "Settings", bootstrap: str, work: Any) -> "list[Moved]":
    """Do it with both ends at hand."""
    from muster.coordinator.cli.common.options import ONE_SHOT_PATIENCE_MS, properties, somebody_listens
    from muster.coordinator.client.aio import Admin
    from muster.coordinator.client.calls.loop import shared_loop

    client = properties(bootstrap, config_of_this_command(), default_api_timeout_ms=ONE_SHOT_PATIENCE_MS)

    async def both() -> "list[Moved]":
        async with Admin(client) as admin:
            somebody_listens(bootstrap, config_of_this_command())
            here = HereByAdmin(admin)
            return await asked(settings, lambda upstream: work(upstream, here))

    return shared_loop().run(both())


class HereByAdmin:
    """`adopt.Here`, of the Muster that an Admin asks."""

    def __init__(self, admin: "Admin") -> None:
        self._admin = admin

    async def _described(self, group: str) -> "GroupDescription | None":
        from muster.coordinator.client.errors import Refused
        from muster.coordinator.engine.upstream.groups import GROUP_NOT_FOUND

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

    async def positions(self, group: str) -> "Mapping[tuple[str, int], Position]":
        from muster.coordinator.engine.upstream.groups import Position

        if await self._described(group) is None:
            return {}  # to be asked for its positions would have it adopted at once (KB-M2)
        kept = await self._admin.group_offsets(group, include_zookeeper=False)
        return {(tp.topic, tp.partition): Position(at.offset, at.leader_epoch, at.metadata) for tp, at in kept.items()}

    async def commit(self, group: str, positions: "Mapping[tuple[str, int], Position]") -> None:
        from muster.coordinator.client.types import OffsetAndMetadata
        from muster.coordinator.engine.groups.adopt import ADOPTED

        given = {
            place: OffsetAndMetadata(each.offset, each.metadata, each.leader_epoch) for place, each in positions.items()
        }
        await self._admin.alter_offsets(group, given, reason=ADOPTED)

    async def delete(self, group: str) -> None:
        from muster.coordinator.engine.groups.adopt import RELEASED

        await self._admin.delete_groups([group], reason=RELEASED)


async def matching(upstream: "Upstream", pattern: str) -> list[str]:
    """Groups of that Kafka, of consumers, with nobody in them."""
    from muster.coordinator.core.patterns import compiled
    from muster.coordinator.engine.groups.guard import KINDS, OWN_PROTOCOL
    from muster.coordinator.engine.upstream.groups import listed

    try:
        wanted = compiled(pattern)
    except ValueError as error:
        raise CommandError(f"{pattern!r} is no regular expression: {error}", code=Exit.USAGE) from error
    await upstream.refresh([])
    found = [each for broker in sorted(upstream.view.brokers) for each in await listed(upstream, broker)]
    return sorted(
        {
            each.group
            for each in found
            if each.kind.lower() in KINDS and each.protocol_type != OWN_PROTOCOL and wanted.fullmatch(each.group)
        }
    )


def tell(moved: "Sequence[Moved]", style: str, done: str) -> None:
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
    show(rows, COLUMNS, style)
    for each in moved:
        left = len(each.without_topic)
        notice(f"{each.group}: {plural(len(each.positions), 'position')} {done}{STAY.format(left) if left else ''}")
