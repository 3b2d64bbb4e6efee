"""`python -m tests.sim.replication`: run seeds of a simulated cluster; print what they met and how to repeat one."""

import argparse
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.sim.replication.run import Result, run_seed
from tests.sim.replication.weather import Weather


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.replication", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=50, metavar="K", help="run K seeds (default 50)")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first of them (default 0)")
    parser.add_argument("--unclean", action="store_true", help="unclean elections are allowed")
    parser.add_argument("--seconds", type=int, default=40, metavar="T", help="of simulated faults in each (default 40)")
    parser.add_argument("--every", type=int, default=1_500, metavar="MS", help="from fault to fault (default 1500)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes to run them in (default 1)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write everything that happened; needs --seed")
    options = parser.parse_args()
    if options.seed is None and options.trace:
        parser.error("--trace is about one run: name it with --seed N")
    return options


def weather_of(seed: int, *, unclean: bool, groups: bool = True) -> Weather:
    """Three to five nodes, as the seed says; every other one has groups, every fifth the storage engine, every fifth
    transactional ids (of these some carry positions, some are workers'), every third of the others a topic that
    acknowledges before it flushes. Every other run with groups has members that expire.

    Where records may be lost by elections (of every other seed those that operators ask for), groups lose what was
    promised as well: there are none.
    """
    members = 2 if groups and not unclean and seed % 2 else 0
    real = groups and seed % 10 in (0, 5)
    hasty = not real and seed % 3 == 1 and seed % 10 not in (2, 8)
    ids = 3 if groups and not unclean and seed % 10 in (2, 8) else 0
    workers = ids if seed % 20 == 12 else 0
    return Weather(
        nodes=3 + seed % 3,
        unclean=unclean,
        asked=unclean and bool(seed % 2),
        hasty=hasty,
        groups=members,
        real=real,
        ids=ids,
        positions=bool(ids) and seed % 10 == 8,
        workers=workers,
        session_ms=1_500 if workers or (members and seed % 4 == 1) else 0,
    )


def weather_asked(options: argparse.Namespace, seed: int) -> Weather:
    usual = weather_of(seed, unclean=options.unclean)
    return replace(usual, lasts_ms=options.seconds * 1_000, fault_every_ms=options.every)


def results(options: argparse.Namespace) -> Iterator[Result]:
    seeds = range(options.start, options.start + options.seeds)
    weather = [weather_asked(options, seed) for seed in seeds]
    if options.jobs == 1:
        yield from map(run_seed, seeds, weather)
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        yield from pool.map(run_seed, seeds, weather)


def main() -> int:
    options = arguments()
    if options.seed is not None:
        weather = weather_asked(options, options.seed)
        runs = [run_seed(options.seed, weather, keep_trace=options.trace is not None)]
        if options.trace:
            options.trace.write_text("\n".join(runs[0].lines) + "\n")
    else:
        runs = []
        for each in results(options):
            runs.append(each)
            if each.violation:
                print(f"seed {each.seed}: {each.violation.splitlines()[0][:600]}", flush=True)
    census: Counter[str] = Counter()
    for each in runs:
        census.update(each.census)
    failed = [each for each in runs if each.violation]
    events, seconds = sum(each.events for each in runs), round(sum(each.node_seconds for each in runs))
    print(f"{len(runs)} seeds, {events} events, {seconds} node-seconds, {len(failed)} failed")
    print(", ".join(f"{count} {what}" for what, count in sorted(census.items())))
    for each in failed[:5]:
        extra = f" --seconds {options.seconds} --every {options.every}" + " --unclean" * options.unclean
        print(f"again: python -m tests.sim.replication --seed {each.seed}{extra} --trace FILE\n{each.violation[:1200]}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
