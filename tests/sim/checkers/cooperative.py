"""7. Cooperative never revokes what it gives back in the same round.

A round is one generation as its member sees it: what is revoked because of a share is not in that share. A KIP-848
member that changes its subscription gives up topics under its old epoch, and may have them back when it changes again;
such members do not count, nor do any while what they may read changes.
"""

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from tests.sim.members.client import Process
from tests.sim.watch import Checker
from tests.sim.world import World


class CooperativeGivesNothingBack(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.revoked: dict[str, tuple[int, frozenset[TopicPartition]]] = {}
        """process -> (generation, what it was told to let go of in it)"""
        self.changed: set[str] = set()

    def told(self, process: Process, event: ev.ClassicEvent | ev.ConsumerEvent) -> None:
        if isinstance(event, ev.SubscriptionChanged) and process.consumer:
            self.changed.add(process.name)

    def acted(self, process: Process, action: act.Action) -> None:
        ruled = process.consumer and self.node.rulings is not None
        if not process.cooperative or process.name in self.changed or ruled:
            return
        match action:
            case act.Revoke():
                self.revoked[process.name] = (process.member.generation, frozenset(action.partitions))
                self.world.census["cooperative revocations"] += 1
            case act.Lost():
                self.revoked.pop(process.name, None)
            case act.Assign():
                generation, revoked = self.revoked.pop(process.name, (-1, frozenset()))
                again = sorted(revoked.intersection(action.partitions))
                if generation == action.generation and again:
                    self.fail(f"{process} revoked {again} and got it back in generation {generation}")
                if not set(action.added) <= set(action.partitions):
                    self.fail(f"{process} is told of {action.added}, which is not in its share {action.partitions}")
