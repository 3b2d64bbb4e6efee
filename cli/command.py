"""`muster top`: the groups of a node, live; with --once as plain text."""

import asyncio
import sys
import time
from collections.abc import Callable

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import NumberRange, client_options, client_properties, require_listener

PATIENCE_MS = 5_000
KEY_S = 0.1
"""How long one wait for a key is: so soon a new picture is on the screen."""
NEWS_S = 10.0
"""How long it is said that the node is back."""


@click.command()
@client_options
@click.option("--once", is_flag=True, help="Print the groups once, as plain text.")
@click.option(
    "--every", type=NumberRange(0.1, 3600), default=2.0, show_default=True, metavar="SECONDS", help="How often to look."
)
def top(bootstrap: str, overrides: dict[str, str], once: bool, every: float) -> int | None:
    """Watch the groups of a node: state, members, lag and its trend, time to go, rebalances, unowned partitions.

    Keys: up and down move, enter opens a group with its assignment map, escape goes back, s sorts, r reverses,
    / filters, q quits.
    """
    given = client_properties(bootstrap, overrides, default_api_timeout_ms=PATIENCE_MS)
    require_listener(bootstrap, overrides)
    if once:
        print_once(given)
        return None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("this is no terminal", "expected one to draw on", "use muster top --once", code=Exit.USAGE)
    return watch_groups(bootstrap, given, every)


def print_once(given: dict[str, object]) -> None:
    from muster.cli.board import HEADINGS
    from muster.cli.common.output import Column, plain_table
    from muster.cli.polling import NodePoller
    from muster.client.aio import AsyncAdmin
    from muster.client.loop import shared_loop

    async def work() -> list[dict[str, str]]:
        async with AsyncAdmin(given) as admin:
            picture = await NodePoller(admin).look(None)
        return [{heading.name: heading.text(line) for heading in HEADINGS} for line in picture.lines]

    rows = sorted(shared_loop().run(work()), key=lambda row: row["GROUP"])
    click.echo(plain_table(rows, [Column(heading.name, heading.name) for heading in HEADINGS]), nl=False)


def watch_groups(address: str, given: dict[str, object], every_s: float) -> int:
    """Draw until `q`. The node is asked in a thread of its own; keys are heard meanwhile."""
    from rich.console import Console, Group
    from rich.live import Live

    from muster.cli.board import TopScreen
    from muster.cli.keys import read_keys, unbuffered_input
    from muster.client.loop import shared_loop

    console = Console(highlight=False, markup=False, emoji=False)
    board = TopScreen(address)
    asking = shared_loop().submit(poll_node(given, board, every_s, lambda: console.size.height))

    def page() -> Group:
        return Group(*board.page(console.size.width, console.size.height))

    try:
        with unbuffered_input() as keyboard, Live(page(), console=console, screen=True, auto_refresh=False) as live:
            while not board.over and not asking.done():
                for key in read_keys(keyboard, KEY_S):
                    board.press(key)
                live.update(page(), refresh=True)
    finally:
        asking.cancel()
    if asking.done() and not asking.cancelled():
        asking.result()
    return Exit.OK


async def poll_node(given: dict[str, object], board: "object", every_s: float, height: Callable[[], int]) -> None:
    """Look again and again. While the node is away, its last picture stays, with a line that says since when."""
    from muster.cli.board import TopScreen
    from muster.cli.polling import NodePoller
    from muster.client.aio import AsyncAdmin
    from muster.client.errors import ClientError

    assert isinstance(board, TopScreen)
    lost_s, back_s = None, None
    async with AsyncAdmin(given) as admin:
        looker = NodePoller(admin)
        while True:
            try:
                board.picture = await looker.look(board.on_screen(height()) if board.picture.lines else None)
            except ClientError as error:
                lost_s = lost_s or time.time()
                since = time.strftime("%H:%M:%S", time.localtime(lost_s))
                board.notice = f"no answer since {since}; shown as it was then. {error}"
            else:
                if lost_s is not None:
                    board.notice, back_s = (
                        f"the node answers again; it was away for {time.time() - lost_s:.0f} s",
                        time.time(),
                    )
                    lost_s = None
                elif back_s is None or time.time() - back_s > NEWS_S:
                    board.notice = ""
            await asyncio.sleep(every_s)
