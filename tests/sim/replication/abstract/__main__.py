"""`python -m tests.sim.replication.abstract`: run schedules, say what they met and which broke a rule."""

import argparse
import sys

from tests.sim.replication.abstract.mutants import MUTANTS
from tests.sim.replication.abstract.world import Figures, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.replication.abstract", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, metavar="K", help="run K schedules (default 100)")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first of them (default 0)")
    parser.add_argument("--mutant", choices=MUTANTS, help="with machines that break this rule")
    options = parser.parse_args()
    figures, broken = Figures(), 0
    for seed in range(options.start, options.start + options.seeds):
        one = run(seed, *MUTANTS.get(options.mutant, ()))
        figures.add(one)
        if one.violation:
            broken += 1
            print(f"seed {seed}, step {one.steps}: {one.violation}")
    print(figures)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
