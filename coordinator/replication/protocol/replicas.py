"""What one node does with all its replicas, as the image changes, followers ask, logs grow and time passes."""

from collections.abc import Iterable

from muster.coordinator.replication.protocol.facts import (
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    TopicPartition,
    halves_of,
    unit_of,
)
from muster.coordinator.replication.protocol.fetch_sessions import FetchReply
from muster.coordinator.replication.protocol.hosting import BecomeFollower, BecomeIdle, BecomeLeader
from muster.coordinator.replication.protocol.image import ClusterImage, ClusterNodeStatus, ImageChanges, PartitionView
from muster.coordinator.replication.protocol.in_sync import IsrAnswer, IsrProposal
from muster.coordinator.replication.protocol.leader import shared_peers
from muster.coordinator.replication.protocol.messages import FetchAnswer, FetchRequest
from muster.coordinator.replication.protocol.ports import LogBroken
from muster.coordinator.replication.protocol.roles import ReplicaRoles, ReplicaSettings, state_from_view
from muster.coordinator.replication.protocol.throttle import NO_LIMIT

__all__ = ["NodeReplicas", "ReplicaSettings"]


class NodeReplicas(ReplicaRoles):
    """The replicas of node `me`. Whoever performs it calls, in any order:

        learn(image, changes)              when the image has changed
        fetch(request, reply)              when a follower asks; wake() after anything that happened
        requests()                         for the fetches to send; answered() or failed() for each
        appended(place), flushed(places)   when a log has grown here, or is flushed
        begins(place)                      when one begins later than before; `look` finds it, too
        questions()                        for what to ask the controller; altered() for each
        look()                             every half of `replica.lag.time.max.ms`, or more often
        look_around()                      every quarter of a session or more often, and when ZooKeeper is reached again

    and looks at `moved` (partitions whose high watermark has moved), `gained` and `lost` (units that this node leads
    from now on, or no more), `resized`, `undone` (what unclean elections cost), `offline` and `strays` afterwards.
    """

    def registered(self, node_epoch: int) -> None:
        """This node has registered anew."""
        self._peer(self.me).epoch = node_epoch
        for fetcher in self.fetchers.values():
            fetcher.begin_anew()

    # The image.

    def learn(self, image: ClusterImage, changes: ImageChanges, now_ms: int) -> None:
        """The image has changed. Takes the steps that follow, unit by unit."""
        self.learn_units(self.begin(image, changes), now_ms)

    def begin(self, image: ClusterImage, changes: ImageChanges) -> list[TopicPartition]:
        """The first part of `learn`, for who takes the other in steps: the units that are to be given to `learn_units`,
        each once, before another image is begun."""
        self._image = image
        for node_id in changes.nodes:
            self._meet(node_id)
        for topic_id, name in changes.deleted.items():
            self._shelf.delete_all(name, topic_id)
        for name in changes.unknown:
            known = self._image.topics.get(name)
            self._shelf.forgotten(name, None if known is None else known.topic_id)
        units = dict.fromkeys(unit_of(moved.place) for moved in changes.partitions)
        if changes.configs:
            set_anew = set(changes.configs)
            units.update(dict.fromkeys(unit for unit in self.leaders if unit.topic in set_anew))
        if self.copying.is_limited:
            self._look_at_copies(changes)
        return list(units)

    def lay_down(self, units: Iterable[TopicPartition]) -> None:
        """Lead and copy no more what is to be led or copied in another epoch: nothing of it is written from here on,
        until it is learned."""
        for unit in units:
            _, epoch = self.leader_of(unit)
            leader, copy = self.leaders.get(unit), self.copies.get(unit)
            if leader is not None and leader.epoch != epoch:
                self._stop_leading(unit)
            if copy is not None and copy.follower.epoch != epoch:
                self._stop_copying(unit)

    def learn_units(self, units: Iterable[TopicPartition], now_ms: int) -> None:
        for unit in units:
            self._learn(unit, now_ms)

    def _look_at_copies(self, changes: ImageChanges) -> None:
        """CL-A9: which copies come slowly has changed with these."""
        places = {moved.place for moved in changes.partitions}
        places |= {place for place in self.copies if place.topic in changes.configs}
        for fetcher in self.fetchers.values():
            fetcher.look_again(fetcher.places & places)

    def _learn(self, unit: TopicPartition, now_ms: int) -> None:
        view, topic = self._image.partition(unit), self._image.topics.get(unit.topic)
        if (
            view is None
            or topic is None
            or (unit.topic == OFFSETS and self._image.partition(halves_of(unit)[1]) is None)
        ):
            return  # a shard of which only one half is told yet
        if self._hosting.is_of_another(unit, topic.topic_id):
            self._leave(unit)  # it was deleted and made again: its epochs have begun anew
        state = state_from_view(view)
        leader = self.leaders.get(unit)
        if leader is not None and leader.epoch == state.leader_epoch and state.leader == self.me:
            leader.learn(state, shared_peers(view.replicas, self._peers), self._min_isr(unit), now_ms)
            self.resized[unit] = None
            self._stirred(leader)
        step = self._hosting.learn(unit, topic.topic_id, state, view.replicas)
        match step:
            case BecomeLeader() if leader is None or leader.epoch != state.leader_epoch:
                self._lead(unit, state, view.replicas, now_ms)
            case BecomeFollower():
                self._follow(unit, state)
            case BecomeIdle():
                self._stop_leading(unit)
                self._stop_copying(unit)
        if self.me not in view.replicas:
            self._let_go(unit, view)

    def _let_go(self, unit: TopicPartition, view: PartitionView) -> None:
        """CL-F11: a copy that is no longer assigned here goes once enough others have everything."""
        self._outages.is_over(unit)
        if len(view.isr) < min(self._min_isr(unit), len(view.replicas)):
            return
        self._shelf.let_go((half, self._image.topics[half.topic].topic_id) for half in halves_of(unit))
        self._hosting.forget(unit)

    def _look_again(self, now_ms: int) -> None:
        """CL-F9: whether a log works again. Who led by it waits until the controller has heard, or it led on in an
        epoch in which it has let everybody down."""
        unit = self._outages.due(now_ms)
        view = None if unit is None else self._image.partition(unit)
        if unit is None or view is None or view.leader == self.me:
            return
        try:
            for half in halves_of(unit):
                self._open(half)
        except LogBroken as error:
            self._outages.still(unit, str(error))
            return
        self._outages.is_over(unit)
        self._hosting.begin_again(unit)
        self._learn(unit, now_ms)

    def is_missed(self, unit: TopicPartition) -> bool:
        """Whether somebody may count on what is offline here: another node leads without it otherwise."""
        view = self._image.partition(unit)
        return view is None or view.leader in (NO_NODE_ID, self.me) or self.me in (*view.isr, *view.elr)

    def copy_anew(self, unit: TopicPartition, now_ms: int) -> None:
        """What was offline here, and is not missed, has been taken away: copy it from its leader."""
        self._outages.is_over(unit)
        self._hosting.begin_again(unit)
        self._learn(unit, now_ms)

    # What followers ask.

    def fetch(self, request: FetchRequest, reply: FetchReply, wait_ms: int, now_ms: int, *, min_bytes: int = 1) -> None:
        self.serving.fetch(request, reply, wait_ms, now_ms, min_bytes=min_bytes)

    def set_rates(self, *, leader: int | None, follower: int | None, now_ms: int) -> None:
        """CL-A9: bytes a second that this node sends as a leader, and asks for as a follower, of replicas that are
        listed and not in sync; None: as many as there are. Holds until it is said anew."""
        self.serving.throttle.limit(NO_LIMIT if leader is None else leader, now_ms)
        self.copying.limit(NO_LIMIT if follower is None else follower, now_ms)
        for fetcher in self.fetchers.values():
            fetcher.look_again(list(fetcher.places))

    def shown(self, place: TopicPartition, epoch: int) -> None:
        """CL-L9: somebody on the door between nodes names this leader epoch."""
        leader = self.leaders.get(unit_of(place))
        if leader is not None and leader.shown(epoch):
            self._stirred(leader)

    # What this node asks of the leaders.

    def requests(self, now_ms: int) -> list[tuple[int, FetchRequest]]:
        """The fetches that are due, each with the node to send it to."""
        due = []
        for node, fetcher in self.fetchers.items():
            request = fetcher.request(self.node_epoch, now_ms)
            if request is not None:
                due.append((node, request))
        return due

    def answered(self, node: int, request: FetchRequest, answer: FetchAnswer, now_ms: int) -> None:
        fetcher = self.fetchers[node]
        for place, stop in fetcher.answered(request, answer, now_ms):
            self._broke(unit_of(place), stop.reason, stays=stop.stays)
        if fetcher.undone:
            self.undone += fetcher.undone
            fetcher.undone.clear()

    def failed(self, node: int, request: FetchRequest, now_ms: int) -> None:
        self.fetchers[node].failed(request, now_ms)

    def unkept(self) -> list[TopicPartition]:
        """What has been copied and is to be flushed, in order."""
        return sorted(place for fetcher in self.fetchers.values() for place in fetcher.unkept)

    # The logs of what it leads.

    def appended(self, place: TopicPartition) -> None:
        """A log that this node leads has grown."""
        led = self.led[place]
        led.leader.appended(led.half, led.log.end)
        self.serving.grew(place)

    def begins(self, place: TopicPartition) -> None:
        """A log that this node leads may begin later than before: retention, or DeleteRecords, took what lay there."""
        led = self.led.get(place)
        if led is not None and led.log.start != led.leader.halves[led.half].start:
            led.leader.begins(led.half, led.log.start)
            self.serving.happened(place)

    def flushed(self, places: Iterable[TopicPartition], now_ms: int) -> None:
        """These logs are flushed, as far as their `kept` says."""
        for place in places:
            led, copy = self.led.get(place), self.copies.get(place)
            if led is not None:
                led.leader.kept(led.half, led.log.kept, now_ms)
                self._stirred(led.leader)
            elif copy is not None:
                self.fetchers[copy.follower.leader].kept([place])

    # Who is in sync.

    def questions(self, now_ms: int) -> list[IsrProposal]:
        """What to ask the controller for; each is to be answered by `altered`."""
        stirring, self._stirring = self._stirring, {}
        asked = []
        for unit in stirring:
            leader = self.leaders.get(unit)
            if leader is None:
                continue
            question = leader.wants(now_ms)
            if question is not None:
                asked.append(question)
            elif leader.wishes:
                self._stirring[unit] = None
        return asked

    def altered(self, question: IsrProposal, answer: IsrAnswer, now_ms: int) -> None:
        leader = self.leaders.get(question.unit)
        if leader is not None:
            leader.altered(question, answer, now_ms)
            self.resized[question.unit] = None
            self._stirred(leader)

    def look(self, now_ms: int) -> None:
        """What time brings: who has fallen behind, which logs begin later by now, and which log works again."""
        for place in list(self.led):
            self.begins(place)
        for leader in list(self.leaders.values()):
            leader.look(now_ms)
            self._stirred(leader)
        self._look_again(now_ms)

    def look_around(self, session_ms: int, now_ms: int, *, in_touch: bool) -> None:
        """Who may have been passed by without hearing of it (`Leader.look_around`); in_touch: with ZooKeeper."""
        for unit, leader in self.leaders.items():
            if (leader.passed_by or not in_touch) and leader.look_around(session_ms, now_ms, in_touch=in_touch):
                self.moved.update(dict.fromkeys(halves_of(unit)))  # who is parked is to hear of it
        self.cut_off = not in_touch and any(leader.passed_by for leader in self.leaders.values())

    # Nodes.

    def _meet(self, node_id: int) -> None:
        if node_id == self.me:
            return  # it knows its own registration better
        peer, view = self._peer(node_id), self._image.nodes.get(node_id)
        gone = view is None or view.status is ClusterNodeStatus.GONE
        peer.epoch = NO_EPOCH if view is None or gone else view.epoch
        peer.leaving = view is not None and view.status is ClusterNodeStatus.SHUTTING_DOWN
        self.serving.registered(node_id)
