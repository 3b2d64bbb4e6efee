"""What a good sticky assignment is worth, measured without any code of ours.

A problem is a dict as in the vector files; an assignment is {member: {topic: [partitions]}}.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Problem = dict[str, Any]
Plan = dict[str, dict[str, list[int]]]
HERE = Path(__file__).parent
MAX_ROUNDS = 2


def vectors(assignor: str) -> Iterator[Problem]:
    with gzip.open(HERE / f"{assignor}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def bare(problem: Problem) -> Problem:
    """The question without the answers."""
    kept = ("assignor", "topics", "members", "reset")
    return json.loads(json.dumps({key: problem[key] for key in kept if key in problem}))


def partition_count(topic: int | list[Any]) -> int:
    return topic if isinstance(topic, int) else len(topic)


def rightful_owners(problem: Problem) -> dict[tuple[str, int], str]:
    best: dict[tuple[str, int], tuple[int, set[str]]] = {}
    for member in problem["members"]:
        generation = member.get("generation")
        generation = -1 if generation is None else generation
        for topic, partition in member.get("owned") or ():
            at, who = best.get((topic, partition), (generation, set()))
            if generation > at:
                at, who = generation, set()
            if generation == at:
                who = who | {member["id"]}
            best[topic, partition] = (at, who)
    reads = {member["id"]: set(member["topics"]) for member in problem["members"]}
    owners = {}
    for (topic, partition), (_, who) in best.items():
        exists = topic in problem["topics"] and 0 <= partition < partition_count(problem["topics"][topic])
        if exists and len(who) == 1 and topic in reads[min(who)]:
            owners[topic, partition] = min(who)
    return owners


def faults(problem: Problem, plan: Plan) -> list[str]:
    """Everything wrong with a complete assignment."""
    reads = {member["id"]: set(member["topics"]) for member in problem["members"]}
    found = [f"no entry for {member}" for member in reads if member not in plan]
    readers: dict[tuple[str, int], list[str]] = {}
    for member, share in plan.items():
        for topic, partitions in share.items():
            if topic not in reads[member]:
                found.append(f"{member} does not read {topic}")
            for partition in partitions:
                readers.setdefault((topic, partition), []).append(member)
    wanted = set().union(*reads.values()) if reads else set()
    every = {
        (topic, partition)
        for topic, size in problem["topics"].items()
        if topic in wanted
        for partition in range(partition_count(size))
    }
    found += [f"{tp} does not exist" for tp in readers.keys() - every]
    found += [f"{tp} is nobody's" for tp in every - readers.keys()]
    found += [f"{tp} is read by {who}" for tp, who in readers.items() if len(who) > 1]
    return found


def replica_racks(problem: Problem) -> dict[tuple[str, int], set[str]] | None:
    """Racks by partition, or None where KIP-881 says that they do not matter."""
    asked = {member["rack"] for member in problem["members"] if member.get("rack")}
    wanted = {topic for member in problem["members"] for topic in member["topics"]}
    racks: dict[tuple[str, int], set[str]] = {}
    for topic, size in problem["topics"].items():
        if topic in wanted:
            listed = [()] * size if isinstance(size, int) else size
            for partition, near in enumerate(listed):
                racks[topic, partition] = {rack for rack in near if rack is not None}
    offered = set().union(*racks.values()) if racks else set()
    if not asked & offered or all(near == offered for near in racks.values()):
        return None
    return racks


def worth(problem: Problem, plan: Plan) -> tuple[int, int, int]:
    """(sum of squared loads, partitions read across racks, partitions taken from their owner): less is better."""
    squares = sum(sum(map(len, share.values())) ** 2 for share in plan.values())
    reader = {(t, p): member for member, share in plan.items() for t, ps in share.items() for p in ps}
    racks = replica_racks(problem)
    rack_of = {member["id"]: member.get("rack") for member in problem["members"]}
    across = 0
    if racks is not None:
        across = sum(bool(rack_of[who]) and rack_of[who] not in racks[tp] for tp, who in reader.items())
    moved = sum(reader[tp] != owner for tp, owner in rightful_owners(problem).items() if tp in reader)
    return squares, across, moved


def metrics_worth(metrics: dict[str, int]) -> tuple[int, int, int]:
    return metrics["sumsq"], metrics.get("rack_mismatch", 0), metrics["moved"]


def hand_over(problem: Problem, solve: Callable[[Problem], Plan]) -> tuple[Plan, int]:
    """Play a cooperative rebalance to its end: (settled assignment, rounds). Unsafe steps are errors."""
    claims: dict[tuple[str, int], set[str]] = {}
    for member in problem["members"]:
        for topic, partition in member.get("owned") or ():
            claims.setdefault((topic, partition), set()).add(member["id"])
    plan = solve(problem)
    owners = rightful_owners(problem)
    given = {(t, p): member for member, share in plan.items() for t, ps in share.items() for p in ps}
    for tp, member in given.items():
        assert owners.get(tp) == member or not claims.get(tp, set()) - {member}, f"{tp} given out too early"
    wanted = {topic for member in problem["members"] for topic in member["topics"]}
    for topic in wanted & problem["topics"].keys():
        for partition in range(partition_count(problem["topics"][topic])):
            tp = (topic, partition)
            assert tp in given or tp in claims, f"{tp} is withheld but nobody claims it"
    rounds = 1
    generation = max((member.get("generation") or 0 for member in problem["members"]), default=0)
    while faults(problem, plan) and rounds < MAX_ROUNDS:
        rounds += 1
        following = json.loads(json.dumps(problem))
        for member in following["members"]:
            share = plan.get(member["id"], {})
            member["owned"] = [[topic, partition] for topic, ps in share.items() for partition in ps]
            member["generation"] = generation + rounds
        plan = solve(following)
    return plan, rounds
