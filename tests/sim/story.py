"""Writes a run down in the language of tests/scripts: the start of its regression test.

A story has one shard and an exact clock, so what it cannot say is left out or comes close: timers that a paused node
fired late fire in time, what a crash lost is there after `reload`, and blobs are written anew from what they say.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from muster.assignors.data.consumer_protocol import parse_subscription
from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.shard import Shard
from tests.sim.checkers.epochs import named
from tests.sim.run import Simulation
from tests.sim.watch import Checker
from tests.sim.world import START_MS, World
from tests.support.stories.script import Stage
from tests.support.stories.story import Block, write_story


class Recorder(Checker):
    """Keeps what each shard was asked, and when."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.events: list[tuple[int, int, events.Event]] = []

    def stepped(self, shard: int, core: Shard, event: events.Event, effects: Effects) -> None:
        self.events.append((self.world.now_ms, shard, event))


def write_run_as_story(seed: int, path: Path) -> None:
    """Run the seed again and write the shard that its last event reached."""
    simulation = Simulation(seed)
    recorder = Recorder(simulation.world)
    simulation.watch.checkers = (*simulation.watch.checkers, recorder)
    why = "nothing was wrong"
    try:
        simulation.run()
    except AssertionError as broken:
        why = str(broken).splitlines()[0]
    last = recorder.events[-1][1] if recorder.events else 0
    mine = [(at_ms, event) for at_ms, shard, event in recorder.events if shard == last]
    blocks = [Block([f"# Simulator, seed {seed}: {why}"], [], [])]
    blocks += [Block([], command, []) for command in commands(mine, simulation)]
    stage = Stage()
    traces = [stage.run(block.command) if block.command else [] for block in blocks]
    write_story(path, blocks, traces)


def commands(happened: list[tuple[int, events.Event]], simulation: Simulation) -> Iterator[list[str]]:
    limits = simulation.limits
    yield [
        f"limits initial_rebalance_delay_ms={limits.initial_rebalance_delay_ms} "
        f"new_member_join_timeout_ms={limits.new_member_join_timeout_ms} max_group_size={limits.max_group_size} "
        f"consumer_session_timeout_ms={limits.consumer_session_timeout_ms} "
        f"consumer_min_session_timeout_ms={limits.consumer_min_session_timeout_ms} "
        f"consumer_max_session_timeout_ms={limits.consumer_max_session_timeout_ms} "
        f"consumer_heartbeat_interval_ms={limits.consumer_heartbeat_interval_ms} "
        f"consumer_min_heartbeat_interval_ms={limits.consumer_min_heartbeat_interval_ms} "
        f"consumer_max_heartbeat_interval_ms={limits.consumer_max_heartbeat_interval_ms} "
        f"consumer_max_group_size={limits.consumer_max_group_size} "
        f"consumer_assignment_interval_ms={limits.consumer_assignment_interval_ms}"
    ]
    now_ms, loads = START_MS, 0
    for at_ms, event in happened:
        command = said(event)
        if isinstance(event, events.Loaded):
            loads += 1
            command = ["reload"] if loads > 1 else []
        if command:
            if at_ms > now_ms:
                yield [f"advance {at_ms - now_ms}ms"]
                now_ms = at_ms
            yield command


def said(event: events.Event) -> list[str]:
    """The event as a command with its lines; empty when a story does it by itself or cannot say it."""
    match event:
        case events.TopicsChanged():
            return ["topics " + " ".join(f"{topic}={count}" for topic, count in sorted(event.partitions.items()))]
        case events.JoinGroup():
            return [join(event)]
        case events.SyncGroup():
            plan = [f"{name_of(member)}: {shares(blob)}" for member, blob in event.assignments]
            return [f"sync {who(event)} protocol={event.protocol_name}", *plan]
        case events.Heartbeat():
            return [f"heartbeat {who(event)}"]
        case events.ConsumerHeartbeat():
            return [beat(event)]
        case events.SessionHeartbeat():
            return [beat(event.heartbeat)]
        case events.Planned():
            return planned(event)
        case events.OffsetCommit() if event.member_id:
            offsets = " ".join(f"{topic}-{number}={value.offset}" for (topic, number), value in event.offsets.items())
            return [f"commit {who(event)} {offsets}"]
        case events.LeaveGroup() if event.members and not event.operator:
            return [f"leave {event.group_id} {' '.join(name_of(member.member_id) for member in event.members)}"]
        case events.DeleteGroup():
            return [f"delete {event.group_id}"]
        case events.AlterSettings():
            return altered(event)
        case events.Unload():
            return ["unload"]
        case _:
            return []


def altered(event: events.AlterSettings) -> list[str]:
    version = "" if event.expected_version is None else f" version={event.expected_version}"
    head = f"set {event.group_id}{version}{' dry' if event.validate_only else ''}"
    wanted = [f"{name} {json.dumps(value)}" for name, value in event.set.items()]
    return [head, *wanted, *(f"{name} unset" for name in event.unset)]


def join(event: events.JoinGroup) -> str:
    subscription = parse_subscription(event.protocols[0].metadata)
    owned = ",".join(f"{topic}-{number}" for topic, numbers in subscription.owned.items() for number in numbers)
    instance = f" instance={event.group_instance_id}" if event.group_instance_id else ""
    return (
        f"ask {event.group_id} {event.group_instance_id or event.client_id} id={event.member_id}{instance} "
        f"session={event.session_timeout_ms} rebalance={event.rebalance_timeout_ms} "
        f"protocols={','.join(protocol.name for protocol in event.protocols)} "
        f"topics={','.join(subscription.topics)} owned={owned}"
    )


def beat(event: events.ConsumerHeartbeat) -> str:
    """What it does not say stays unsaid: a story has no word for that, so the word is left out."""
    owned = None if event.owned is None else ",".join(f"{topic}-{number}" for topic, number in named(event.owned))
    words = {
        "instance": event.group_instance_id,
        "timeout": None if event.rebalance_timeout_ms < 0 else str(event.rebalance_timeout_ms),
        "topics": None if event.topic_names is None else ",".join(event.topic_names),
        "regex": event.topic_regex,
        "assignor": event.server_assignor,
        "owned": owned,
    }
    said = [f"{word}={value}" for word, value in words.items() if value is not None]
    return f"beat {event.group_id} {event.member_id} epoch={event.member_epoch} {' '.join(said)}".rstrip()


def planned(event: events.Planned) -> list[str]:
    error = "" if event.plan is not None else f" {event.error}"
    plan = [
        f"{member}: " + " ".join(f"{topic}-{number}" for topic, numbers in share.items() for number in numbers)
        for member, share in (event.plan or {}).items()
    ]
    return [f"planned {event.group_id} {event.epoch}{error}", *plan]


def who(event: events.SyncGroup | events.Heartbeat | events.OffsetCommit) -> str:
    return f"{event.group_id} {name_of(event.member_id)} id={event.member_id} generation={event.generation}"


def name_of(member_id: str) -> str:
    """Ids are counted up behind the name (see Node._fresh_id), as in a story."""
    return member_id.rpartition("-")[0]


def shares(blob: bytes) -> str:
    return " ".join(f"{topic}-{number}" for topic, numbers in assignment_of(blob).items() for number in numbers)
