"""What the cluster's demo shows: who leads and owns what, the takeover as the ledger has it, and the proof."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.groups.rebalance_story import move_line
from muster.coordinator.observability.views.formatting import host_and_port, plural, spans

if TYPE_CHECKING:
    from muster.coordinator.rpc.v1.cluster_service_pb2 import DescribeClusterResponse, Election
    from muster.coordinator.rpc.v1.ledger_pb2 import CoordinatorMove

Process: TypeAlias = "subprocess.Popen[bytes]"

GONE = 4
"""NODE_STATE_GONE."""


class DemoStanding(NamedTuple):
    """Cluster and group at one moment. members: ids by worker; owned: partitions by worker."""

    cluster: "DescribeClusterResponse"
    coordinator: str
    generation: int
    members: Mapping[str, str]
    owned: Mapping[str, Sequence[int]]


class StandingBefore(NamedTuple):
    """What is not to change."""

    generation: int
    members: Mapping[str, str]


class ClusterProof(NamedTuple):
    """All that decides the exit code, and what it is worth."""

    before: StandingBefore
    after: StandingBefore
    sent: int
    acked: int
    given_up: int
    lacking: int
    again: int
    twice_owned: int
    without_coordinator_s: float
    without_ack_s: float

    @property
    def holds(self) -> bool:
        return (
            self.before == self.after
            and self.acked == self.sent
            and not (self.given_up or self.lacking or self.twice_owned)
        )


def show_standing(out: Console, title: str, now: DemoStanding) -> None:
    """A row for each node; then one for each worker."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for heading in ("node", "state", "leads", "of the lines", "copies", "behind", ""):
        table.add_column(heading)
    for node in now.cluster.nodes:
        led = [row.partition for row in now.cluster.partitions if row.leader_id == node.node_id]
        words = []
        if host_and_port(node.host, node.port) == now.coordinator:
            words.append("coordinates the group")
        if node.node_id == now.cluster.controller_id:
            words.append("controller")
        state = "up" if node.state != GONE else Text("gone", style="red")
        figures = (str(node.leads), spans(led) or "-", str(node.holds), str(node.behind))
        table.add_row(str(node.node_id), state, *figures, ", ".join(words))
    out.print(table)
    owned = ", ".join(f"{worker} {spans(numbers) or '-'}" for worker, numbers in sorted(now.owned.items()))
    out.print(Text(f"generation {now.generation}: {owned}"), soft_wrap=True)
    out.print()


def show_takeover(out: Console, moves: "Sequence[CoordinatorMove]", elections: "Sequence[Election]") -> None:
    """Who took the group over, by its own ledger; and how many leaders the kill moved, by that of elections."""
    out.print(Text("The takeover, from the ledger", style="bold"))
    for move in moves:
        out.print(move_line(move), soft_wrap=True)
    causes = ", ".join(sorted({one.cause for one in elections}))
    out.print(Text(f"{plural(len(elections), 'leader')} changed with it: {causes}"), soft_wrap=True)


def show_cluster_proof(out: Console, proved: ClusterProof) -> None:
    table = Table(title="Proof", title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")

    def row(what: str, figure: str, *, good: bool, note: str = "") -> None:
        table.add_row(what, Text(figure, style="green" if good else "bold red"), note)

    lost = proved.sent - proved.acked
    row("lines acknowledged", f"{proved.acked:,}", good=not lost, note=f"of {proved.sent:,} sent, acks=all")
    row("of these not read", f"{proved.lacking:,}", good=not proved.lacking)
    table.add_row("read again", f"{proved.again:,}", "after the last commit before the kill")
    row("partitions owned twice at a time", f"{proved.twice_owned:,}", good=not proved.twice_owned)
    before, after = proved.before, proved.after
    same = before.generation == after.generation
    row("generation", f"{before.generation} -> {after.generation}", good=same, note="unchanged" if same else "CHANGED")
    kept = sum(after.members.get(worker) == member for worker, member in before.members.items())
    whole = before.members == after.members
    row("members' ids unchanged", f"{kept} of {len(before.members)}", good=whole)
    table.add_row("without a coordinator", f"{proved.without_coordinator_s:.2f} s", "from the kill to the first answer")
    table.add_row("longest time without an acknowledgement", f"{proved.without_ack_s:.2f} s", "")
    out.print(table)
    verdict = "all of it holds" if proved.holds else "NOT ALL OF IT HOLDS"
    out.print(Text(verdict, style="bold green" if proved.holds else "bold red"))
