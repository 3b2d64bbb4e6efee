"""How resources of one kind are evened out among workers: what is too much for one, and who gets what is free."""

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

Loads: TypeAlias = dict[str, set[str]]
"""worker -> the resources it works on"""
Takes: TypeAlias = Mapping[str, Collection[str]] | None
"""worker -> the resources it is ready to work on; None: every worker takes everything"""


def accepts_resource(takes: Takes, worker: str, resource: str) -> bool:
    return takes is None or resource in takes.get(worker, ())


def find_surplus(kind: frozenset[str], loads: Loads, takes: Takes = None) -> dict[str, set[str]]:
    """What each worker has beyond its fair part of `kind`; nothing when giving out the rest evens it out anyway.

    Where workers are not ready for the same resources there is no fair part: nothing is taken away then, or the same
    resource could be taken from its only possible owner again and again.

    >>> sorted(find_surplus(frozenset("abcd"), {"w1": set("abcd"), "w2": set()})["w1"])
    ['c', 'd']
    """
    if not loads or (takes is not None and any(not kind <= set(takes.get(worker, ())) for worker in loads)):
        return {}
    least, extras = divmod(len(kind), len(loads))
    counts = {worker: len(load & kind) for worker, load in loads.items()}
    with_extra = sum(count == least + 1 for count in counts.values())
    if with_extra == extras and all(count in (least, least + 1) for count in counts.values()):
        return {}
    found: dict[str, set[str]] = {}
    for worker in sorted(loads):
        if counts[worker] <= least:
            continue
        allowed = least + (extras > 0)
        extras -= extras > 0
        if counts[worker] > allowed:
            found[worker] = set(sorted(loads[worker] & kind)[allowed:])
    return found


def distribute_resources(resources: Sequence[str], loads: Loads, kind: frozenset[str], takes: Takes = None) -> None:
    """Each resource goes to the worker with the least of its kind; ties fall to the smaller worker id.

    What no worker is ready for stays unassigned.
    """
    queue = [(len(load & kind), worker) for worker, load in loads.items()]
    heapq.heapify(queue)
    for resource in resources:
        passed: list[tuple[int, str]] = []
        while queue and not accepts_resource(takes, queue[0][1], resource):
            passed.append(heapq.heappop(queue))
        if queue:
            count, worker = heapq.heappop(queue)
            loads[worker].add(resource)
            heapq.heappush(queue, (count + 1, worker))
        for entry in passed:
            heapq.heappush(queue, entry)
