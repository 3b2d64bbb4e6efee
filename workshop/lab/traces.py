"""Made-up load, by seed: how many records a second each partition is sent, and how many each member can read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from muster.coordinator.core.control.balance.loads import Floats

SAMPLE_S = 10
HOURS = 4
SAMPLES = HOURS * 3600 // SAMPLE_S
PARTITIONS = 120
MEMBERS = 4
"""With zipf 1.2 the largest of 120 partitions has 0.29 of the load: no more members can be even."""
TOTAL = 10_000.0
"""Records a second of all partitions together, on the average."""
HEADROOM = 1.35
"""What a member can read, over a fair share of the load, or over the largest partition where that is more."""
ANY_MOMENT = 300 // SAMPLE_S
"""Load changes up to so many samples late, by seed: a rule that looks at every third sample must not find each change
in the very sample in which it begins."""
NOISE = 0.05
"""Of each figure, as a standard deviation."""


@dataclass(frozen=True, slots=True)
class LoadTrace:
    """`written[k, p]`: records a second to partition p in sample k; `power[k, m]`: what member m can read a second."""

    name: str
    written: Floats
    power: Floats


def zipf_shares(rng: np.random.Generator, exponent: float) -> Floats:
    """Shares of the load, in no order."""
    shares = np.arange(1, PARTITIONS + 1) ** -exponent
    return rng.permutation(shares / shares.sum())


def steady_load(shares: Floats) -> Floats:
    return np.tile(shares * TOTAL, (SAMPLES, 1))


def drifting_load(rng: np.random.Generator) -> Floats:
    """Each partition has a day of its own: four hours long, twice as much at its noon as at its midnight."""
    when = np.arange(SAMPLES)[:, None] / SAMPLES
    phase = rng.random(PARTITIONS)
    return steady_load(zipf_shares(rng, 0.8)) * (1 + 0.33 * np.sin(2 * np.pi * (when + phase)))


def wandering_load(rng: np.random.Generator) -> Floats:
    """A fifth of the load is one partition's, for about forty minutes; then it is another's."""
    written = steady_load(zipf_shares(rng, 0.5)) * 0.8
    span = 40 * 60 // SAMPLE_S
    hot = rng.choice(PARTITIONS, size=SAMPLES // span + 1, replace=False)
    late = rng.integers(ANY_MOMENT, size=len(hot))
    turns = [0, *(late[1:] + np.arange(1, len(hot)) * span).tolist()]
    for begin, end, partition in zip(turns, turns[1:], hot.tolist(), strict=False):
        written[begin:end, partition] += 0.2 * TOTAL
    return written


def bursting_load(seconds: int) -> Callable[[np.random.Generator], Floats]:
    """Every five minutes one partition has eight times its load, for so long."""

    def made(rng: np.random.Generator) -> Floats:
        written = steady_load(np.full(PARTITIONS, 1 / PARTITIONS))
        for begin in range(60 + int(rng.integers(ANY_MOMENT)), SAMPLES, 300 // SAMPLE_S):
            written[begin : begin + seconds // SAMPLE_S, rng.integers(PARTITIONS)] *= 8
        return written

    return made


WRITTEN: Mapping[str, Callable[[np.random.Generator], Floats]] = {
    "zipf-1.2": lambda rng: steady_load(zipf_shares(rng, 1.2)),
    "zipf-1.5": lambda rng: steady_load(zipf_shares(rng, 1.5)),
    "drift": drifting_load,
    "wandering": wandering_load,
    "bursts-60s": bursting_load(60),
    "bursts-20s": bursting_load(20),
    "slow-member": lambda rng: steady_load(zipf_shares(rng, 0.8)),
}


def make_trace(name: str, seed: int) -> LoadTrace:
    """The same for the same name and seed."""
    rng = np.random.default_rng([seed, list(WRITTEN).index(name)])
    written = WRITTEN[name](rng)
    fair = max(TOTAL / MEMBERS, float(np.median(written.max(axis=1))))
    power = np.full((SAMPLES, MEMBERS), HEADROOM * fair)
    if name == "slow-member":
        # It reads two thirds of a fair share for an hour, and its backlog grows.
        begin = SAMPLES // 4 + int(rng.integers(ANY_MOMENT))
        power[begin : begin + 3600 // SAMPLE_S, int(rng.integers(MEMBERS))] = TOTAL / MEMBERS * 2 / 3
    noise = np.exp(rng.normal(0, NOISE, written.shape))
    return LoadTrace(name, written * noise, power)
