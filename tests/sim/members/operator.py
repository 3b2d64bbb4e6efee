"""An operator who freezes, deploys, drains and pins at random, and resumes everything when all is to be calm."""

from collections.abc import Sequence
from typing import Protocol as Shape

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.events import (
    AlterSettings,
    AskDeploy,
    AskDrain,
    AskFreeze,
    AskPin,
    EndDeploy,
    EndFreeze,
    HoldGroup,
    OverrideEnd,
    OverrideRequest,
    ResumeGroup,
)
from muster.coordinator.core.model.records import By, Orphans
from tests.sim.network import Answer, Network
from tests.sim.node.node import Node

TIMEOUT_MS = 5_000
AGAIN_MS = 3_000


class Target(Shape):
    """A place in the group that he does something with."""

    group_id: str
    topics: tuple[str, ...]
    instance_id: str | None

    @property
    def client_id(self) -> str: ...


class Operator:
    def __init__(self, network: Network, node: Node) -> None:
        self.network, self.node = network, node
        self.world = network.world

    def act(self, target: Target) -> bool:
        """One verb, or the end of one. Now and then a classic group is planned for, so that it can be held.

        True: it is one under which an operator starts members anew.
        """
        rng, chance = self.world.rng, self.world.rng.random()
        if chance < 0.15:
            setting: dict[str, JsonValue] = {"assignor": "uniform"} if rng.random() < 0.7 else {}
            if chance < 0.05:
                setting["balance.move.budget"] = 1
            unset = () if "assignor" in setting else ("assignor",)
            request = AlterSettings(0, target.group_id, setting, unset, None, False, "ops")
            self.network.call("operator", request, TIMEOUT_MS, lambda _: None)
        elif chance < 0.35:
            end: OverrideEnd | None = rng.choice((None, EndFreeze(), EndDeploy()))
            self._say(ResumeGroup(0, target.group_id, end, None, False, "ops"))
        else:
            ask = self._ask(target)
            calm = isinstance(ask, AskFreeze | AskDeploy)
            for_ms = rng.choice((5_000, 20_000, 40_000) if calm else (None, 20_000, 60_000))
            self._say(HoldGroup(0, target.group_id, ask, for_ms, None, rng.random() < 0.1, "ops"))
            return calm
        return False

    def _ask(self, target: Target) -> OverrideRequest:
        rng = self.world.rng
        topic = rng.choice(sorted(self.node.topics))
        by, name = (By.INSTANCE, target.instance_id) if target.instance_id else (By.CLIENT_ID, target.client_id)
        drain, pin = AskDrain(by, name), AskPin(topic, rng.randrange(self.node.topics[topic]), name)
        freeze = AskFreeze(rng.choice((None, Orphans.GIVE, Orphans.KEEP)))
        # While nobody may lose anything, pins and drains only wait.
        deploy = AskDeploy(rng.randint(1, 3))
        return rng.choice((freeze, freeze, deploy, deploy, drain, drain, pin, pin, pin))

    def _say(self, request: HoldGroup | ResumeGroup) -> None:
        self.network.call("operator", request, TIMEOUT_MS, self._hear)

    def _hear(self, answer: Answer) -> None:
        if answer is not None:
            self.world.census[f"verbs: {answer.code.name}"] += 1

    def resume(self, group_ids: Sequence[str]) -> None:
        """Until nothing is held any more, whatever the node is doing."""
        held = [group_id for group_id in group_ids if self._is_held(group_id)]
        for group_id in held:
            self._say(ResumeGroup(0, group_id, None, None, False, "ops"))
        self.world.after(AGAIN_MS, lambda: self.resume(group_ids))

    def _is_held(self, group_id: str) -> bool:
        shard = self.node.shard_of(group_id)
        return shard is not None and group_id in shard.state.holds
