"""`python -m tests.sim.kafka_backend`: seeds of three nodes over one Kafka: what they met, and which broke a rule."""

import argparse
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext

from tests.sim.kafka_backend.whole import run_whole_seed
from tests.sim.kafka_backend.world import Result, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.kafka_backend", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=50, metavar="K", help="run K seeds (default 50)")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first of them (default 0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes to run them in (default 1)")
    parser.add_argument("--whole", action="store_true", help="with the real engine, and members")
    options = parser.parse_args()
    run = run_whole_seed if options.whole else run_seed
    seeds = [options.seed] if options.seed is not None else range(options.start, options.start + options.seeds)
    census: Counter[str] = Counter()
    failed: list[Result] = []
    events = count = 0
    with ProcessPoolExecutor(options.jobs) if options.jobs > 1 else nullcontext() as pool:
        for each in pool.map(run, seeds, chunksize=8) if pool is not None else map(run, seeds):
            count, events = count + 1, events + each.events
            census.update(each.census)
            if each.violation:
                failed.append(each)
                print(f"seed {each.seed}: {each.violation[:400]}", flush=True)
    print(f"{count} seeds, {events} events, {len(failed)} failed")
    print(", ".join(f"{number} {what}" for what, number in sorted(census.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
