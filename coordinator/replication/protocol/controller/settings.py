"""What a controller goes by: the settings of its node, and what a topic sets for itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from muster.coordinator.replication.protocol.facts import ELECTIONS, parse_min_isr


class ElectionRules(NamedTuple):
    """What elections in a topic go by."""

    loose: bool
    min_isr: int
    unclean: bool


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Names, meanings and defaults are the node's settings'; times in milliseconds.

    loose: topics that do not set `flush.messages` are not flushed record by record. internal: internal topics of one
    partition, beside the two of the groups.
    """

    min_isr: int = 2
    unclean_election: bool = False
    loose: bool = False
    offsets_partitions: int = 50
    offsets_replicas: int = 3
    internal: tuple[str, ...] = (ELECTIONS,)
    eviction: bool = True
    auto_rebalance: bool = True
    imbalance_percent: int = 10
    imbalance_check_ms: int = 300_000
    shutdown_wait_ms: int = 1_000
    """How long ControlledShutdown waits for the node to lead nothing, before it hears what it still leads."""

    def rules_of(self, configs: Mapping[str, str]) -> ElectionRules:
        return ElectionRules(self.loose_of(configs), self.min_isr_of(configs), self.unclean_of(configs))

    def min_isr_of(self, configs: Mapping[str, str]) -> int:
        """
        >>> ControllerSettings().min_isr_of({"min.insync.replicas": "1"}),
        ... ControllerSettings().min_isr_of({"min.insync.replicas": "?"})
        (1, 2)
        """
        return parse_min_isr(configs, self.min_isr)

    def unclean_of(self, configs: Mapping[str, str]) -> bool:
        text = configs.get("unclean.leader.election.enable")
        return self.unclean_election if text is None else text.strip().lower() == "true"

    def loose_of(self, configs: Mapping[str, str]) -> bool:
        text = configs.get("flush.messages")
        return self.loose if text is None else text.strip() != "1"
