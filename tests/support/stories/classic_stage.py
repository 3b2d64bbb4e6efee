"""What stories can say of members of classic groups: `given`, `restart`, `join`, `ask`, `sync`, `heartbeat`, `leave`.

And of any parked request or session stream: `hello`, `listen`, `stream-lost`, `forget`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.assignors.data.consumer_protocol import encode_assignment
from muster.coordinator.core.model import events
from muster.coordinator.core.model.types import MemberIdentity
from tests.support.stories.story import milliseconds, pairs, protocols_from, repeated, topic_map


@dataclass
class Client:
    """What a member remembers between its requests."""

    name: str
    member_id: str = ""
    generation: int = -1
    instance: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    """How it joins: what a story said once holds until it says otherwise."""


class ClassicStage:
    """Mixed into `Stage`, which gives it the shard, the clock and the clients."""

    def do_given(self: Any, words: list[str], lines: list[str]) -> Iterator[str]:
        """given GROUP [options]; then NAME: PARTITION... [options] for each member, the leader first.

        The group as it is once all of them have joined together and fetched their shares.
        """
        group, *options = words
        shares = {}
        for name, _, rest in (line.partition(":") for line in lines):
            own = [word for word in rest.split() if "=" in word]
            shares[name] = " ".join(word for word in rest.split() if "=" not in word)
            list(self.do_join([group, name, *options, *own], []))
        while ("join", group) in self.timers:
            list(self.do_advance([f"{self.timers['join', group] - self.now_ms}ms"], []))
        plan = [f"{name}: {share}" for name, share in shares.items()]
        for name in shares:
            list(self.do_sync([group, name], plan))
        described = list(self.do_describe([group], []))
        yield from (line.replace("reply describe:", f"{self.now_ms}ms") for line in described)

    def do_restart(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The client's process is started anew: it forgets its member id and generation, not its instance id."""
        client = self.client(*words)
        client.member_id, client.generation = "", -1
        yield "ok"

    def do_join(self: Any, words: list[str], lines: list[str]) -> Iterator[str]:
        """Both steps of a join: a client that is sent back with an id comes again with it."""
        group, name, *rest = words
        client = self.client(group, name)
        known = client.member_id
        trace = list(self.do_ask(words, lines))
        if not known and client.member_id and any("MEMBER_ID_REQUIRED" in line for line in trace):
            records = [line for line in trace if line.startswith(("append", "ledger"))]
            trace = [*records, *self.do_ask([group, name, *rest], lines)]
        yield from trace

    def do_ask(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """One JoinGroup request, no more."""
        group, name, *rest = words
        client = self.client(group, name)
        said = pairs(rest)
        client.instance = instance_from(said, client)
        options = client.options = {**client.options, **said}
        once = {word: options.pop(word, "") for word in ("id", "reason")}
        prefix = client.instance or options.get("client", name)
        self.drawn[prefix] += 1
        event = events.JoinGroup(
            request_id=self.request("join", client),
            group_id=group,
            member_id=once["id"] or client.member_id,
            group_instance_id=client.instance,
            client_id=options.get("client", name),
            client_host=options.get("host", "host"),
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            protocol_type=options.get("type", "consumer"),
            protocols=protocols_from(options),
            fresh_id=str(self.drawn[prefix]),
            reason=once["reason"],
            require_known_member_id=int(options.get("v", 9)) >= 4,
            supports_skip_assignment=int(options.get("v", 9)) >= 9,
            remote_assignor=options.get("remote", ""),
            client_software=options.get("software", ""),
            rights=self.rights_of(name),
            connection=int(options.get("connection", 0)),
        )
        yield from self.asked(event)

    def do_close(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """close GROUP CONNECTION: a connection by which members had joined is closed."""
        group, connection = words
        yield from self.obeyed(self.step(events.ConnectionClosed(group, int(connection)))) or ["ok"]

    def do_fetched(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """fetched GROUP MEMBER_ID ENTRY CONNECTION TOPIC-PARTITION...: by the names of a member that is gone."""
        group, member_id, number, connection, *places = words
        found = tuple((topic, int(number)) for topic, _, number in (place.rpartition("-") for place in places))
        event = events.FetchedAfterLeaving(group, int(number), member_id, int(connection), found)
        yield from self.obeyed(self.step(event)) or ["ok"]

    def do_sync(self: Any, words: list[str], lines: list[str]) -> Iterator[str]:
        group, name, *rest = words
        options = pairs(rest)
        client = self.client(group, name)
        plan = dict(line.split(":", 1) for line in lines)
        event = events.SyncGroup(
            request_id=self.request("sync", client),
            group_id=group,
            member_id=options.get("id", client.member_id),
            group_instance_id=instance_from(options, client),
            generation=int(options.get("generation", client.generation)),
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            assignments=tuple(
                (self.client(group, who.strip()).member_id, encode_assignment(topic_map(share.split())))
                for who, share in plan.items()
            ),
            snapshot=repeated(options.get("snapshot", "")).encode(),
            leader_state=repeated(options.get("state", "")),
            scheduled_delay_ms=milliseconds(options.get("delay", "0ms")),
        )
        yield from self.asked(event)

    def do_heartbeat(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        group, name, *rest = words
        options = pairs(rest)
        client = self.client(group, name)
        yield from self.asked(
            events.Heartbeat(
                self.request("heartbeat", client),
                group,
                options.get("id", client.member_id),
                instance_from(options, client),
                int(options.get("generation", client.generation)),
                self.rights_of(name),
            )
        )

    def do_listen(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The client's session stream asks to be told what its next heartbeat would hear."""
        group, name, *rest = words
        options = pairs(rest)
        client = self.client(group, name)
        request = self.request("listen", client)
        consumer = group in self.shard.consumer_groups
        if consumer:
            self.beats[request], self.listens[group, name] = (group, name), request
        generation = self.side(group, name).epoch if consumer else client.generation
        member_id = name if consumer else client.member_id
        yield from self.asked(
            events.Listen(
                request,
                group,
                options.get("id", member_id),
                instance_from(options, client),
                int(options.get("generation", generation)),
                consumer,
            )
        )

    def do_hello(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """hello GROUP NAME: the client opens a session stream."""
        group, name, *rest = words
        client = self.client(group, name)
        member_id = name if group in self.shard.consumer_groups else client.member_id
        request = self.request("hello", client)
        options = pairs(rest)
        yield from self.asked(
            events.Hello(request, group, options.get("id", member_id), int(options.get("connection", 0)))
        )

    def do_stream_lost(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """stream-lost GROUP NAME grace=TIME [connection=]: the client's session stream breaks."""
        group, name, *rest = words
        if any(
            who is self.client(group, name) for number, (_, who) in self.requests.items() if number not in self.answered
        ):
            yield from self.do_forget([group, name], [])
        options = pairs(rest)
        grace_ms, connection = milliseconds(options["grace"]), int(options.get("connection", 0))
        client = self.client(group, name)
        member_id = name if group in self.shard.consumer_groups else client.member_id
        yield from self.step(events.StreamLost(group, member_id, grace_ms, connection))

    def do_leave(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """leave GROUP NAME... [reason=..] [by=OPERATOR]; NAME@INSTANCE names the instance too, @INSTANCE only that."""
        group, *rest = words
        options = pairs([word for word in rest if "=" in word])
        leavers = []
        for word in [word for word in rest if "=" not in word]:
            name, _, instance = word.partition("@")
            member_id = self.client(group, name).member_id or name if name else ""
            leavers.append(MemberIdentity(member_id, instance or None, options.get("reason", "")))
        event = events.LeaveGroup(
            self.request("leave", self.client(group, "*")),
            group,
            tuple(leavers),
            operator=options.get("by", ""),
            everyone="by" in options and not leavers,
        )
        yield from self.obeyed(self.asked(event))

    def do_forget(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """The connection of the client's parked request breaks."""
        group, name = words
        client = self.client(group, name)
        parked = max(
            request for request, (_, who) in self.requests.items() if who is client and request not in self.answered
        )
        del self.requests[parked]  # whatever is said to it now, nobody hears
        yield from self.step(events.Forget(group, parked)) or ["ok"]


def instance_from(options: dict[str, str], client: Client) -> str | None:
    """instance=NAME, or instance=none for a request that does not name it; else what the client was started with."""
    instance = options.get("instance", client.instance)
    return None if instance == "none" else instance
