"""What stories say of assignors on trial: shadows answer, canaries begin and end."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from muster.coordinator.core.control.trials.canary import DEFAULT_LAG_FLOOR
from muster.coordinator.core.model import events
from muster.coordinator.core.model import events as trial
from muster.coordinator.core.model.shadow_scoring import ShadowRequest, all_failed, score_candidates
from tests.support.stories.story import milliseconds, pairs


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
        scores = all_failed(asked, error) if error else score_candidates(asked, lambda: 0)
        yield from self.obeyed(self.step(trial.Shadowed(group, asked.ticket, scores))) or ["quiet"]

    def do_canary(self: Any, words: list[str], lines: list[str]) -> Iterator[str]:
        """canary GROUP ASSIGNOR for=30m [then=wait] [dry] [floor=N] [lag=MEAN over=1h], and below it a guard a line."""
        group, assignor, *rest = words
        options = pairs([word for word in rest if word != "dry"])
        event = trial.StartCanary(
            self.request("canary", self.client(group, "*")),
            group,
            assignor,
            milliseconds(options["for"]),
            tuple(lines),
            int(options.get("floor", DEFAULT_LAG_FLOOR)),
            options.get("then", "promote") == "promote",
            "dry" in rest,
            "operator at here",
            float(options.get("lag", 0)),
            milliseconds(options.get("over", "0ms")),
        )
        yield from self.asked(event)

    def do_promote(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        request = self.request("promote", self.client(words[0], "*"))
        yield from self.asked(trial.EndCanary(request, words[0], True, "operator at here"))

    def do_rollback(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        request = self.request("rollback", self.client(words[0], "*"))
        yield from self.asked(trial.EndCanary(request, words[0], False, "operator at here"))

    def do_trial(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The group's canary, with its figures."""
        request = self.request("trial", self.client(words[0], "*"))
        yield from self.asked(trial.DescribeCanary(request, words[0]))

    def do_lag(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """lag GROUP N...: samples of its total lag."""
        for lag in words[1:]:
            yield from self.obeyed(self.step(trial.LagMeasured(words[0], int(lag)))) or [f"{lag}: quiet"]
