"""One node: the real engine, codec, loader and timers over the crashing log, driven by virtual time."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from muster.coordinator.core.model.effects import Effects, GroupChanged, HeartbeatReply, Reply
from muster.coordinator.core.model.events import (
    Event,
    Forget,
    Heartbeat,
    JoinGroup,
    Loaded,
    LongWorkGoesOn,
    TopicsChanged,
    Unload,
)
from muster.coordinator.core.model.records import Record
from muster.coordinator.core.model.rights import Rights, RightsAnew
from muster.coordinator.core.model.types import Limits, RequestId, TimerKey
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import ReleasedAnswers, ShardCore, ShardStatus, partition_for
from muster.coordinator.runtime.stepper import FlushJob
from tests.sim.members.rulings import Rulings
from tests.sim.network import Call, Network
from tests.sim.node.crashing_log import CrashingLog
from tests.sim.node.described import describe
from tests.sim.node.ears import Ears
from tests.sim.node.session import Sessions
from tests.sim.node.work import Workbench
from tests.sim.watch import Checker, Watch
from tests.sim.world import START_MS, World
from tests.support.stories.consumer_stage import topic_id

MOST_BACK_MS = START_MS // 2
"""A node's clock is never further behind than that: its times stay positive."""

MakeShard = Callable[[Limits, int], Shard]
MakeEngine = Callable[..., Engine]


class Watched(Protocol):
    """A node whose shards are watched."""

    @property
    def watch(self) -> "Watch | Checker": ...


class WatchedShard:
    """A shard whose every step is shown to the checkers. What they find never reaches the engine."""

    def __init__(self, shard: Shard, node: Watched) -> None:
        self.shard = shard
        self.node = node
        self.alive = False
        """Only after Loaded is the state what it will be."""
        self._early: list[Record] | None = None
        """What was decided on the way there."""
        self._long: tuple[Event, Effects] | None = None
        """What is done a slice at a time, and what its slices have decided."""

    @property
    def deadlines(self) -> Mapping[TimerKey, int]:
        return self.shard.deadlines

    def step(self, event: Event, now_ms: int) -> Effects:
        index, watch = self.shard.index, self.node.watch
        if not self.alive:
            return self._wake(event, now_ms)
        goes_on = isinstance(event, LongWorkGoesOn)
        if not goes_on:
            watch.before_step(index, self.shard, event)
        effects = self.shard.step(event, now_ms)
        if goes_on or effects.rest is not None:
            self._take_slice(event, effects)
        else:
            watch.stepped(index, self.shard, event, effects)
        return effects

    def _take_slice(self, event: Event, effects: Effects) -> None:
        """All slices of something long: to the checkers they are one step."""
        if not isinstance(event, LongWorkGoesOn):
            self._long = event, Effects()
        assert self._long is not None, "nothing long was begun"
        begun, done = self._long
        done.records += effects.records
        done.replies += effects.replies
        done.notices += effects.notices
        done.timers |= effects.timers
        if effects.rest is None:
            self._long = None
            self.node.watch.stepped(self.shard.index, self.shard, begun, done)

    def beat(self, group_id: str, member_id: str, generation: int, rights: Rights, now_ms: int) -> bool:
        return self.shard.beat(group_id, member_id, generation, rights, now_ms)

    def _wake(self, event: Event, now_ms: int) -> Effects:
        """The topics, then Loaded: to the checkers they are one step."""
        index, watch = self.shard.index, self.node.watch
        if self._early is None:
            self._early = []
            watch.replayed(index, self.shard)
            watch.before_step(index, self.shard, event)
        effects = self.shard.step(event, now_ms)
        self._early += effects.records
        if isinstance(event, Loaded):
            self.alive = True
            watch.loaded(index, self.shard)
            watch.stepped(index, self.shard, event, replace(effects, records=self._early))
        return effects

    def writes_nothing(self, event: Event) -> bool:
        return self.shard.writes_nothing(event)

    def knows(self, group_id: str, member_id: str | None) -> bool:
        return self.shard.knows(group_id, member_id)

    def committed_to(self) -> Mapping[tuple[str, bytes], int]:
        return self.shard.committed_to()

    def apply(self, record: Record) -> None:
        self.shard.apply(record)


class Node:
    """The node's process and its machine. `topics` is the catalog: partition counts by topic."""

    def __init__(
        self,
        world: World,
        network: Network,
        log: CrashingLog,
        watch: Watch,
        limits: Limits,
        topics: dict[str, int],
        make_shard: MakeShard = Shard,
        make_engine: MakeEngine = Engine,
        off_loop: float = 0.0,
    ) -> None:
        self.world = world
        self.network = network
        self.log = log
        self.watch = watch
        self.limits = limits
        self.topics = topics
        self.make_shard = make_shard
        self.make_engine = make_engine
        self.up = False
        self.life = 0
        self.engine: Engine
        self.calls: dict[RequestId, tuple[Call, Any]] = {}
        """Requests that wait for an answer, as the edge of the node knows them."""
        self.own: dict[RequestId, tuple[Callable[[Reply], None], Any]] = {}
        """Those that the edge asks by itself, for its session streams."""
        self.ears = Ears(world, self)
        self.sessions = Sessions(self)
        self.workbench = Workbench(self, off_loop)
        self.rulings: Rulings | None = None
        """Where members may not read everything."""
        self._requests = 0
        self._fresh: dict[tuple[str, str], int] = {}
        self._turn_at_ms: int | None = None
        self._flushing = False

    # Life and death

    def start(self) -> None:
        """A new process over what the log has kept, loading for a while. One that runs is left alone."""
        if self.up:
            return
        self.life += 1
        self.up, self._flushing, self._turn_at_ms = True, False, None
        self._set_clock()
        self.log.reopen()
        if self.world.chance(0.3):
            self.world.census["logs compacted"] += 1
            self.log.compact()
        options = EngineOptions(on_bug=self._bug, on_status=self.watch.status)
        self.engine = self.make_engine(self.log, self.log.shards, self.limits, self._shard, options)
        self.engine.submit_all(self._catalog())
        life = self.life
        self.world.after(self.world.between(0, 2_000), lambda: self.ears.hear(lambda: self._load(life)))

    def _set_clock(self) -> None:
        """Wall time is read when the process starts, and carried on by a clock that never goes back."""
        if self.world.chance(self.log.faults.clock_set_back):
            world = self.world
            world.behind_ms = min(world.behind_ms + world.between(1_000, MOST_BACK_MS // 2), MOST_BACK_MS)
            world.census["clocks set back"] += 1
            world.trace(f"the node's clock is {world.behind_ms}ms behind")

    def _load(self, life: int) -> None:
        if life != self.life or not self.up:
            return
        self.engine.load(self.world.node_ms)
        self.world.trace("node loaded")
        self._after_engine()

    def crash(self, *, power: bool) -> None:
        """The process dies, and with it all connections; with `power` the machine dies too."""
        if not self.up:
            return
        self.up = False
        self.life += 1
        self.world.census["power losses" if power else "node kills"] += 1
        if any(part.unflushed for part in self.log.parts.values()):
            self.world.census["crashes between append and flush"] += 1
        if power:
            self.log.lose_unflushed()
        calls, self.calls = self.calls, {}
        self.own.clear()
        self.watch.crashed()
        self.sessions.crashed()
        self.ears.crashed()
        for call, _ in calls.values():
            self.network.reset(call)
        self.world.trace(f"node dies{' with its machine' if power else ''}")

    def unload(self, shard: int, for_ms: int) -> None:
        """The shard goes away, and comes back later."""
        if not self.up or self.ears.deaf or self.engine.status(shard) is not ShardStatus.ACTIVE:
            return
        self.world.census["shards unloaded"] += 1
        self.world.trace(f"shard {shard} unloads")
        self.ears.check()
        self.engine.submit(shard, Unload())
        self.engine.turn(self.world.node_ms)
        self._after_engine()
        life = self.life
        self.world.after(for_ms, lambda: self._load_again(shard, life))

    def _load_again(self, shard: int, life: int) -> None:
        if life == self.life and self.up and self.engine.status(shard) is ShardStatus.UNLOADED:
            self.engine.load_shard(shard, self.world.node_ms)
            self._after_engine()

    def change_topics(self) -> None:
        """The catalog has changed; the node hears of it at once."""
        self.ears.hear(self._tell_topics)

    def _tell_topics(self) -> None:
        self._tell_all(self._catalog())

    def _catalog(self) -> TopicsChanged:
        return TopicsChanged(dict(self.topics), ids={topic: topic_id(topic) for topic in self.topics})

    # Requests

    def receive(self, call: Call) -> None:
        """A request arrives: give it an id, draw what the edge draws, and queue it for the next turn."""
        self._requests += 1
        request = self._with_rights(replace(call.request, request_id=self._requests), call.caller)
        if isinstance(request, JoinGroup):
            request = replace(request, fresh_id=self._fresh_id(request))
        self.world.trace(f"in  #{request.request_id} {call.caller} {describe(request)}")
        self.watch.taken(call, request.request_id)
        self.watch.received(request)
        if isinstance(request, Heartbeat) and self._beat(request):
            self.world.census["heartbeats taken past the queue"] += 1
            self.watch.released(request, HeartbeatReply())
            self.network.reply(call, HeartbeatReply())
            return
        self.calls[request.request_id] = (call, request)
        call.at_node.append(request.request_id)
        self._submit(request)
        self._release()
        self.wake()

    def ask(self, request: Any, on_reply: Callable[[Reply], None], who: str = "") -> RequestId:
        """A request of the edge itself, for `who`. `on_reply` is called in a later turn, never before this returns."""
        self._requests += 1
        request_id = self._requests
        request = self._with_rights(replace(request, request_id=request_id), who)
        self.own[request_id] = (on_reply, request)
        self.world.trace(f"in  #{request_id} session {describe(request)}")
        self.watch.received(request)
        self._submit(request)
        self.wake()
        return request_id

    def _with_rights(self, request: Any, who: str) -> Any:
        return request if self.rulings is None else self.rulings.with_rights(request, who)

    def tell_rights(self, event: RightsAnew) -> None:
        """The lists have changed; the node's edge tells its shards at once."""
        self.ears.hear(lambda: self._tell_all(event))

    def _tell_all(self, event: Event) -> None:
        if self.up:
            self.engine.submit_all(event)
            self.wake()

    def _submit(self, request: Any) -> None:
        taken = self.engine.submit(self.shard_index(request.group_id), request)
        assert taken, "the simulation never fills the inbox"

    def _beat(self, request: Heartbeat) -> bool:
        """As the edge does where nothing is due and nothing waits."""
        shard, now_ms, node_ms = self.shard_index(request.group_id), self.world.now_ms, self.world.node_ms
        if request.group_instance_id is not None or self._turn_at_ms == now_ms or self.ears.deaf:
            return False
        return self.engine.beat(shard, request.group_id, request.member_id, request.generation, node_ms, request.rights)

    def _fresh_id(self, request: JoinGroup) -> str:
        """Counted, not drawn: a story that repeats the events gets the same ids."""
        key = request.group_id, request.group_instance_id or request.client_id
        self._fresh[key] = self._fresh.get(key, 0) + 1
        return str(self._fresh[key])

    def forget(self, call: Call) -> None:
        """Nobody waits for this call any more."""
        for request_id in call.at_node:
            _, request = self.calls.pop(request_id, (None, None))
            if request is not None:
                self._forget(request)

    def forget_request(self, request_id: RequestId) -> None:
        """The edge does not want the answer any more. One that is there already finds nobody."""
        self._release()
        _, request = self.own.pop(request_id, (None, None))
        if request is not None:
            self._forget(request)

    def _forget(self, request: Any) -> None:
        self.world.trace(f"forget #{request.request_id}")
        self.watch.forgotten(request)
        self.engine.submit(self.shard_index(request.group_id), Forget(request.group_id, request.request_id))
        self.wake()

    # Turns and flushes

    def stood_still(self, stalled_ms: int) -> None:
        self.engine.stood_still(stalled_ms, self.world.node_ms)

    def wake(self) -> None:
        """A turn is due soon."""
        self._turn_by(self.world.now_ms + self.world.between(0, 3))

    def _turn_by(self, at_ms: int) -> None:
        at_ms = max(at_ms, self.ears.deaf_until_ms)
        if self._turn_at_ms is None or at_ms < self._turn_at_ms:
            self._turn_at_ms = at_ms
            life = self.life
            self.world.at(at_ms, lambda: self._turn(at_ms, life))

    def _turn(self, at_ms: int, life: int) -> None:
        if life != self.life or at_ms != self._turn_at_ms:
            return
        self._turn_at_ms = None
        if self.ears.deaf:
            self._turn_by(self.ears.deaf_until_ms)
            return
        self.ears.check()
        self.engine.turn(self.world.node_ms)
        self._after_engine()

    def _after_engine(self) -> None:
        """What a driver does after each turn: start a flush, release, and see when the next turn is due."""
        self._start_flush()
        self._release()
        if self.engine.pending:
            self.wake()
        deadline_ms = self.engine.next_deadline_ms
        if deadline_ms is not None:
            self._turn_by(max(deadline_ms + self.world.behind_ms, self.world.now_ms + 1))

    def _start_flush(self) -> None:
        job = None if self._flushing else self.engine.flush_job()
        if job is None:
            return
        self._flushing = True
        self.log.mark(list(job.positions))
        life = self.life
        self.world.after(
            self.world.between(0, self.log.faults.flush_ms), lambda: self.ears.hear(lambda: self._end_flush(job, life))
        )

    def _end_flush(self, job: FlushJob, life: int) -> None:
        if life != self.life:
            return
        self._flushing = False
        try:
            job.run()
        except LogFailed as error:
            self.engine.flush_failed(job, error, self.world.node_ms)
        else:
            self.engine.flushed(job, self.world.node_ms)
        self._after_engine()

    def _release(self) -> None:
        released: ReleasedAnswers = self.engine.take_released()
        for request_id, reply in released.replies:
            self._answer(request_id, reply)
        for notice in released.notices:
            self._notice(notice)
        for work in released.work:
            self.workbench.take(work)
        for load in released.loads:
            self.workbench.measure(load)

    def _answer(self, request_id: RequestId, reply: Reply) -> None:
        own, request = self.own.pop(request_id, (None, None))
        if own is not None:
            self.world.trace(f"out #{request_id} {type(reply).__name__} {reply.code.name}")
            self.watch.released(request, reply)
            own(reply)
            return
        asked = self.calls.pop(request_id, None)
        if asked is None:
            self.world.violated("node", f"request #{request_id} is answered, but nobody waits for it")
            return
        call, request = asked
        self.world.trace(f"out #{request_id} {type(reply).__name__} {reply.code.name}")
        self.watch.released(request, reply)
        self.network.reply(call, reply)

    def _notice(self, notice: GroupChanged) -> None:
        self.world.trace(f"{notice.group_id} is {notice.state} in generation {notice.generation}")

    # Looking in

    def shard_index(self, group_id: str) -> int:
        return partition_for(group_id, self.log.shards)

    def shard_of(self, group_id: str) -> Shard | None:
        """The live shard of a group; None while it has none."""
        return self.live_shard(self.shard_index(group_id))

    def live_shard(self, index: int) -> Shard | None:
        core = self.engine.core(index) if self.up else None
        return core.shard if isinstance(core, WatchedShard) else None

    def live_shards(self) -> list[Shard]:
        return [shard for index in range(self.log.shards) if (shard := self.live_shard(index)) is not None]

    def _shard(self, limits: Limits, index: int) -> ShardCore:
        shard = self.make_shard(limits, index)
        shard.state.planner = self.workbench.plan
        return WatchedShard(shard, self)

    def _bug(self, line: str, error: Exception) -> None:
        self.world.violated("engine", f"a bug stopped a shard: {error!r} at {line}")
