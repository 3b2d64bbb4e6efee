"""`muster top`: the groups of a node, live in a terminal; with --once as plain text.

The node is polled on a thread of its own while keys are read one at a time, without waiting for the end of a line.
"""

import asyncio
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from muster.cli.common.commands import CommandError, Exit, Unhealthy, describe_missing
from muster.cli.common.options import (
    client_options,
    client_properties,
    require_listener,
    seconds_option,
)
from muster.cli.common.watching import watching_options

if TYPE_CHECKING:
    from muster.cli.node_polling import GroupsPicture

# The command
# -----------

PATIENCE_MS = 5_000
KEY_S = 0.1
"""How long one wait for a key is: so soon a new picture is on the screen."""
NEWS_S = 10.0
"""How long it is said that the node is back."""


@click.command()
@watching_options
@client_options
@click.option("--once", is_flag=True, help="Print the groups once, as plain text.")
@seconds_option("--every", 2.0, "How often to refresh.", least=0.1)
def top(bootstrap: str, overrides: dict[str, str], once: bool, every: float) -> int | None:
    """Watch the groups of a node live.

    Shows state, members, lag and its trend, time to catch up, rebalances and unowned partitions. Keys: up and down
    move, enter opens a group with its assignment map, escape goes back, s sorts, r reverses, / filters, q quits.
    """
    given = client_properties(bootstrap, overrides, default_api_timeout_ms=PATIENCE_MS)
    require_listener(bootstrap, overrides)
    if once:
        print_once(given)
        return None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("this is not a terminal", "expected one", "use muster top --once", code=Exit.USAGE)
    return watch_groups(bootstrap, given, every)


def print_once(given: dict[str, object]) -> None:
    from muster.cli.common.output import Column, plain_table
    from muster.cli.node_polling import NodePoller
    from muster.cli.top_screen import HEADINGS
    from muster.client.aio import AsyncAdmin
    from muster.client.twins import shared_loop

    async def work() -> "GroupsPicture":
        async with AsyncAdmin(given) as admin:
            return await NodePoller(admin).poll_node(None)

    picture = shared_loop().run(work())
    rows = [{heading.name: heading.text(line) for heading in HEADINGS} for line in picture.lines]
    rows.sort(key=lambda row: row["GROUP"])
    click.echo(plain_table(rows, [Column(heading.name, heading.name) for heading in HEADINGS]), nl=False)
    if picture.untold:
        raise Unhealthy("\n".join(map(describe_missing, picture.untold)))


def watch_groups(address: str, given: dict[str, object], every_s: float) -> int:
    """Draw until `q`. The node is asked in a thread of its own; keys are heard meanwhile."""
    from rich.console import Console, Group
    from rich.live import Live

    from muster.cli.top_screen import TopScreen
    from muster.client.twins import shared_loop

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
    from muster.cli.node_polling import NodePoller
    from muster.cli.top_screen import TopScreen
    from muster.client.aio import AsyncAdmin
    from muster.client.errors import ClientError

    assert isinstance(board, TopScreen)
    lost_s, back_s = None, None
    async with AsyncAdmin(given) as admin:
        looker = NodePoller(admin)
        while True:
            try:
                board.picture = await looker.poll_node(board.on_screen(height()) if board.picture.lines else None)
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
                    board.notice = describe_missing(board.picture.untold[0]) if board.picture.untold else ""
            await asyncio.sleep(every_s)


# Keys of a terminal
# ------------------

NAMES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1bOA": "up", "\x1bOB": "down",
    "\x1bOC": "right", "\x1bOD": "left", "\x1b[5~": "pageup", "\x1b[6~": "pagedown", "\r": "enter", "\n": "enter",
    "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace", "\x03": "q",
}  # fmt: skip
MOST_BYTES = 64


@contextmanager
def unbuffered_input() -> Iterator[int]:
    """Standard input as keys; the terminal is as it was afterwards, whatever happens."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_keys(descriptor: int, within_s: float) -> list[str]:
    """The keys that were pressed; none when nobody does within that time. A closed terminal is a `q`."""
    ready, _, _ = select.select([descriptor], [], [], within_s)
    if not ready:
        return []
    data = os.read(descriptor, MOST_BYTES)
    return named(data.decode(errors="replace")) if data else ["q"]


def named(text: str) -> list[str]:
    """
    >>> named("\\x1b[Aq"), named("\\x1b"), named("/ab\\r")
    (['up', 'q'], ['escape'], ['/', 'a', 'b', 'enter'])
    """
    keys: list[str] = []
    while text:
        sequence = next((s for s in sorted(NAMES, key=len, reverse=True) if text.startswith(s)), text[0])
        keys.append(NAMES.get(sequence, sequence))
        text = text[len(sequence) :]
    return keys
