"""`python -m tests.torture [--rounds N] [--seed N]`: kill loops and crash points at every call, with many seeds."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.fakes.memory_files import MemoryFiles
from tests.torture.killing import loop
from tests.unit.storage.workload import Killed, Promise, check, live, survive

# So many kills share a directory before the next begins with an empty one.
PER_DIRECTORY = 25


def crash_points(seed: int) -> int:
    """A power cut at every call of the scripted life, with unsynced changes kept, torn or lost by the seed."""
    whole = MemoryFiles()
    live(whole, Promise())
    for number in range(1, whole.calls + 1):
        files = MemoryFiles()

        def fault(operation: str, path: str, files: MemoryFiles = files, number: int = number) -> None:
            if files.calls == number:
                raise Killed

        files.fault = fault
        promise = Promise()
        survive(files, promise)
        rng = random.Random(seed * 100_003 + number)
        files.crash(lambda choices, rng=rng: rng.choice(list(choices)))
        try:
            check(files, promise)
        except Exception as error:
            raise AssertionError(f"seed {seed}, power cut at call {number}: {error}") from error
    return whole.calls


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture")
    parser.add_argument("--rounds", type=int, default=1000, help="how often the writer is killed")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds the crash points get")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    options = parser.parse_args()
    torn = 0
    for done in range(0, options.rounds, PER_DIRECTORY):
        with tempfile.TemporaryDirectory() as home:
            count = min(PER_DIRECTORY, options.rounds - done)
            torn += loop(Path(home) / "data", count, options.seed + done)[1]
        print(f"{done + count} kills, {torn} torn tails, nothing acknowledged was lost", flush=True)
    for seed in range(options.seed, options.seed + options.seeds):
        print(f"seed {seed}: {crash_points(seed)} power cuts, nothing acknowledged was lost", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
