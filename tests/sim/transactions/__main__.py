"""`python -m tests.sim.transactions`: run seeds of simulated transactions; print what was met and how to repeat one."""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic

from tests.sim.transactions.mutants import MUTANTS, SOUND
from tests.sim.transactions.world import Options, Result, run_seed

KINDS: dict[str, Options] = {**SOUND, **MUTANTS}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.transactions", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=100, metavar="K", help="run K seeds of each kind (default 100)")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first of them (default 0)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="one of these; default: all that are sound")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes to run them in (default 1)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write everything that happened; needs --seed")
    parser.add_argument("--census", action="store_true", help="print what was met")
    options = parser.parse_args()
    if options.seed is None and options.trace:
        parser.error("--trace is about one run: name it with --seed N")
    return options


def results(kind: str, options: argparse.Namespace) -> Iterator[Result]:
    if options.seed is not None:
        yield run_seed(options.seed, KINDS[kind], keep_trace=True)
        return
    seeds = range(options.start, options.start + options.seeds)
    if options.jobs == 1:
        yield from (run_seed(seed, KINDS[kind]) for seed in seeds)
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        yield from pool.map(partial(run_seed, options=KINDS[kind]), seeds, chunksize=10)


def main() -> int:
    options = arguments()
    logging.disable(logging.WARNING)  # what a log has lost with the power
    failed = 0
    for kind in options.kind or SOUND:
        began, runs, events, bad = monotonic(), 0, 0, 0
        met: Counter[str] = Counter()
        for run in results(kind, options):
            runs, events, bad = runs + 1, events + run.events, bad + bool(run.violation)
            met.update(run.met)
            if run.violation:
                print(f"{kind}: seed {run.seed} failed after {run.events} events\n  {run.violation}")
                print(f"  repeat: python -m tests.sim.transactions --kind {kind!r} --seed {run.seed} --trace FILE")
            if options.trace:
                options.trace.write_text("\n".join(run.lines) + "\n", encoding="utf-8")
        print(f"{kind}: {runs} seeds, {bad} failed, {events} events, {monotonic() - began:.0f} s", flush=True)
        for name, count in sorted(met.items()) if options.census else ():
            print(f"{count:>9}  {name}")
        failed += bad
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
