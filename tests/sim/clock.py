"""Each process has a clock of its own: ahead of or behind the others, and a little fast or slow."""

from dataclasses import dataclass

from tests.sim.world import World


@dataclass(frozen=True, slots=True)
class Clock:
    """What a member is told the time is. It never goes back; protocol timeouts are measured with it."""

    world: World
    ahead_ms: int = 0
    per_mille: int = 1_000
    """How many of its milliseconds pass in a second of the world's."""

    @property
    def now_ms(self) -> int:
        return self.ahead_ms + self.world.now_ms * self.per_mille // 1_000

    def world_ms(self, at_ms: int) -> int:
        """The first moment of the world at which this clock shows at least `at_ms`."""
        return -(-(at_ms - self.ahead_ms) * 1_000 // self.per_mille)


def draw(world: World) -> Clock:
    """Most clocks are right; the others are off by up to an hour and run off by up to two percent."""
    if world.rng.random() < 0.5:
        return Clock(world)
    world.census["processes with a clock of their own"] += 1
    return Clock(world, world.between(-900_000, 3_600_000), world.between(980, 1_020))
