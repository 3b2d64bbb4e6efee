"""What has to hold, after each step: CL-S1 to CL-S14 (docs/design/cluster.md, "Proof by simulation")."""

from bisect import bisect_right
from typing import Any

from tests.sim.replication.logs import Entry


class Violation(AssertionError):
    """A rule is broken."""


class Check:
    def __init__(self, world: Any) -> None:
        self.world = world
        self.acked: dict[int, tuple[int, object]] = {}
        self.committed: list[Entry] = []
        self.appended_by: dict[int, tuple[int, int]] = {}
        self.shown: dict[tuple[int, int, int], int] = {}

    def fail(self, rule: str, what: str) -> None:
        raise Violation(f"{rule}: {what}")

    def leads(self, node: Any) -> None:
        """CL-S1, CL-S4: a later leader has all that was acknowledged, or shown as committed."""
        log = node.log
        epoch = node.leader.epoch
        for offset, (acked_in, value) in self.acked.items():
            if acked_in < epoch and offset >= log.start and log.at(offset) != Entry(acked_in, value):
                self.fail("1 acked never lost", f"{offset} is not with node {node.id}, the leader of epoch {epoch}")
        if not self.has_committed(log):
            self.fail("4 committed", f"node {node.id} leads epoch {epoch} without all of {len(self.committed)} records")

    def has_committed(self, log: Any) -> bool:
        """All that was ever shown as committed, but for what retention took."""
        upto = len(self.committed)
        return log.end >= upto and log.records[: max(0, upto - log.start)] == self.committed[log.start :]

    def appended(self, node: Any, epoch: int) -> None:
        """CL-S2."""
        if self.appended_by.setdefault(epoch, (node.id, node.life)) != (node.id, node.life):
            self.fail("2 one leader", f"node {node.id} appends in epoch {epoch}, as {self.appended_by[epoch]} did")

    def acknowledged(self, offset: int, epoch: int, value: object) -> None:
        self.acked[offset] = (epoch, value)
        if self.world.nodes[self.appended_by[epoch][0]].log.at(offset) != Entry(epoch, value):
            self.fail("1 acked never lost", f"{offset} is not what was acknowledged")

    def cuts(self, node: Any, to: int) -> None:
        if to < node.follower.high_watermark:
            self.fail("F6", f"node {node.id} cuts to {to}, below its high watermark")

    def begins(self, node: Any, at: int) -> None:
        """CL-F7: only what ends before the leader's log begins is dropped."""
        if at <= node.log.end:
            self.fail("F7", f"node {node.id} drops its log, which ends at {node.log.end}, to begin at {at}")

    def stopped(self, node: Any, reason: str) -> None:
        self.fail("F6", f"node {node.id}: {reason}")

    def step(self) -> None:
        world = self.world
        state = world.controller.state
        for node in world.nodes.values():
            leader = node.leader
            if leader is not None:
                self._watermark(node, leader)
        answering = [node.id for node in world.nodes.values() if node.answers()]
        if len(answering) > 1:
            self.fail("9 one coordinator", f"nodes {answering} both answer")
        for replica in (*state.isr, *state.elr):
            node = world.nodes[replica]
            if node.directory == state.directories[replica] and node.log.kept_end < len(self.committed):
                self.fail(
                    "6 who may lead", f"node {replica} has {node.log.kept_end} of {len(self.committed)} committed"
                )
        if set(state.isr) & set(state.elr):
            self.fail("6 who may lead", f"{state.isr} and {state.elr} have somebody in common")
        leader = world.nodes[state.leader].leader if state.leader >= 0 else None
        if (
            leader is not None
            and leader.epoch == state.leader_epoch
            and not set(state.isr) <= set(leader.in_sync.largest)
        ):
            self.fail("6 who may lead", f"{state.isr} is in sync, node {state.leader} counts {leader.in_sync.largest}")

    def _watermark(self, node: Any, leader: Any) -> None:
        key = (node.id, node.life, leader.epoch)
        before, now = self.shown.get(key, 0), leader.high_watermark
        if now < before:
            self.fail("4 watermark", f"node {node.id} went back from {before} to {now}")
        if now == before:
            return
        self.shown[key] = now
        if now > node.log.kept_end:
            self.fail("5 below ends", f"node {node.id} shows {now}, and has kept {node.log.kept_end}")
        log = node.log
        common = min(now, len(self.committed))
        if common > log.start and log.at(common - 1) != self.committed[common - 1]:
            self.fail("4 committed", f"node {node.id} contradicts what was committed at {common - 1}")
        if now > len(self.committed):
            self.committed += log.records[len(self.committed) - log.start : now - log.start]
            self._below_ends(node, leader, now)

    def _below_ends(self, node: Any, leader: Any, now: int) -> None:
        """CL-S5, for what had not been committed before: all in sync have kept it, and these are enough."""
        world = self.world
        state = world.controller.state
        if state.leader_epoch == leader.epoch:
            for replica in state.isr:
                other = world.nodes[replica]
                if other.directory == state.directories[replica] and other.log.kept_end < now:
                    self.fail("5 below ends", f"{now} is committed, and node {replica} has kept {other.log.kept_end}")
        copies = [other.id for other in world.nodes.values() if other.log.kept_end >= now]
        if len(copies) + world.disks_gone_now < world.min_isr:
            self.fail("5 below min", f"{now} is committed, and kept by {copies} only")

    def logs(self) -> None:
        """CL-S3: where two logs have the same epoch at an offset, all before is the same."""
        nodes = list(self.world.nodes.values())
        for node in nodes:
            self._epochs(node)
        for i, one in enumerate(nodes):
            for other in nodes[i + 1 :]:
                mine, theirs = one.log, other.log
                start, end = max(mine.start, theirs.start), min(mine.end, theirs.end)
                if start < end:
                    self._match(
                        one.id, mine.records[start - mine.start :], other.id, theirs.records[start - theirs.start :]
                    )

    def _match(self, one: int, mine: list[Entry], other: int, theirs: list[Entry]) -> None:
        same = next(
            (at for at in range(min(len(mine), len(theirs)) - 1, -1, -1) if mine[at].epoch == theirs[at].epoch), -1
        )
        if mine[: same + 1] != theirs[: same + 1]:
            self.fail("3 log matching", f"nodes {one} and {other} differ at or before {same}")

    def _epochs(self, node: Any) -> None:
        """CL-L1: the checkpoint says of each record what its batch does."""
        log = node.log
        starts = [start for _, start in log.epochs]
        for offset, entry in enumerate(log.records, log.start):
            place = bisect_right(starts, offset) - 1
            if place < 0 or log.epochs[place][0] != entry.epoch:
                self.fail("L1 epochs", f"node {node.id} has {offset} of epoch {entry.epoch}, and notes {log.epochs}")
