"""What stories say of assignors on trial: shadows answer, canaries begin and end."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from muster.coordinator.core import events
from muster.coordinator.core.control.trial.scoring import ShadowRequest, all_failed, scored
from tests.support.stories.story import pairs


class TrialStage:
    """Mixed into `Stage`, which gives it the shard, the clock and the clients."""

    step: Callable[[events.Event], list[str]]
    obeyed: Callable[[list[str]], list[str]]

    def __init__(self) -> None:
        self.asked_shadows: dict[str, list[ShadowRequest]] = {}
        """By group: decisions that its shadows are to make again, oldest first."""
        self.answered_shadows: dict[str, ShadowRequest] = {}

    def do_shadows(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """shadows GROUP [error=WHY] [again] [T=1,2,3]: what the group's shadows make of what they were asked.

        Each takes no time. `T=...`: the lags of topic T. `again`: the last answer comes once more.
        """
        group, *rest = words
        asked = self.answered_shadows[group] if "again" in rest else self.asked_shadows[group].pop(0)
        self.answered_shadows[group] = asked
        options = pairs([word for word in rest if word != "again"])
        error = options.pop("error", "")
        lags = {topic: [int(lag) for lag in row.split(",")] for topic, row in options.items()} or None
        asked = replace(asked, lags=lags, rates=lags)
        scores = all_failed(asked, error) if error else scored(asked, lambda: 0)
        yield from self.obeyed(self.step(events.Shadowed(group, asked.ticket, scores))) or ["quiet"]
