"""`python -m tests.sim`: run seeds, say what they met, and how to repeat a failure."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from itertools import repeat
from pathlib import Path

from tests.sim.faults import Faults
from tests.sim.run import HARD, HELD, ROLLED, RULED, Parts, Result, run_seed
from tests.sim.story import write_run_as_story

LINES, LINE_WIDTH = 3, 600
"""How much of a failure is printed; the trace has all of it."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=50, metavar="K", help="run K seeds (default 50)")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first of them (default 0)")
    parser.add_argument("--hard", action="store_true", help="a node that is well, and members that are not")
    parser.add_argument("--held", action="store_true", help="an operator freezes, deploys, drains and pins")
    parser.add_argument(
        "--ruled", action="store_true", help="members may not read everything, and what they may changes"
    )
    parser.add_argument("--rolled", action="store_true", help="the same, and all groups change their protocol")
    parser.add_argument(
        "--weather",
        action="append",
        type=fault,
        default=[],
        metavar="NAME=VALUE",
        help="a fault that is not drawn (tests/sim/faults.py), as often as you like",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes to run them in (default 1)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write everything that happened; needs --seed")
    parser.add_argument("--script", type=Path, metavar="FILE", help="write the run as a story; needs --seed")
    parser.add_argument("--census", action="store_true", help="say how often each kind of thing happened")
    options = parser.parse_args()
    if options.seed is None and (options.trace or options.script):
        parser.error("--trace and --script are about one run: name it with --seed N")
    if (options.hard or options.weather) and options.script:
        parser.error("--script writes runs in drawn weather only; leave --hard and --weather out")
    if options.seeds < 1 or options.jobs < 1:
        parser.error(f"--seeds {options.seeds} and --jobs {options.jobs} must be at least 1")
    return options


def results(options: argparse.Namespace) -> Iterator[Result]:
    seeds = range(options.start, options.start + options.seeds)
    if options.jobs == 1:
        yield from map(run_seed, seeds, repeat(parts_of(options)))
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        yield from pool.map(run_seed, seeds, repeat(parts_of(options)), chunksize=4)


def parts_of(options: argparse.Namespace) -> Parts:
    chosen = ((HARD, options.hard), (HELD, options.held), (ROLLED, options.rolled), (RULED, options.ruled))
    parts = next((parts for parts, wanted in chosen if wanted), Parts())
    return replace(parts, weather={**parts.weather, **dict(options.weather)})


def fault(said: str) -> tuple[str, float]:
    """A fault by name, and how much of it there is: ms as whole numbers, shares as fractions.

    >>> fault("full_every_ms=15000"), fault("loss=0.1")
    (('full_every_ms', 15000), ('loss', 0.1))
    """
    name, _, value = said.partition("=")
    known = {field.name: type(field.default) for field in fields(Faults)}
    if name not in known:
        raise argparse.ArgumentTypeError(f"no fault is called {name!r}; there are {', '.join(known)}")
    try:
        return name, known[name](value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{said!r}: expected a number ({known[name].__name__}) behind =") from None


def report(runs: list[Result], *, census: bool) -> None:
    events, seconds = sum(run.events for run in runs), sum(run.seconds for run in runs)
    slowest = max(run.settled_after_ms for run in runs)
    print(f"{len(runs)} seeds, {events} events, {events / max(seconds, 0.001):.0f} events/s")
    print(f"slowest to settle without faults: {slowest / 1000:.1f} virtual seconds")
    met: Counter[str] = Counter()
    for run in runs:
        met.update(run.census)
    for name, count in sorted(met.items()) if census else ():
        print(f"{count:>9}  {name}")


def main() -> int:
    options = arguments()
    runs = [run_seed(options.seed, parts_of(options), keep_trace=True)] if options.seed is not None else []
    failed = []
    for run in runs or results(options):
        if options.seed is None:
            runs.append(run)
        if run.violation:
            failed.append(run)
            told = "\n  ".join(line[:LINE_WIDTH] for line in run.violation.splitlines()[:LINES])
            print(f"seed {run.seed} failed after {run.events} events\n  {told}")
            kinds = {
                "--hard": options.hard,
                "--held": options.held,
                "--rolled": options.rolled,
                "--ruled": options.ruled,
            }
            weather = [f"--weather {name}={value}" for name, value in options.weather]
            how = " ".join([f"--seed {run.seed}", *(kind for kind, wanted in kinds.items() if wanted), *weather])
            print(f"  repeat: python -m tests.sim {how} --trace trace.txt", flush=True)
    if options.trace:
        options.trace.write_text("\n".join(runs[0].lines) + "\n", encoding="utf-8")
    if options.script:
        write_run_as_story(options.seed, options.script)
    report(runs, census=options.census)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
