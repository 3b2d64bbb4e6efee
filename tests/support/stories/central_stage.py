"""What stories can say of central groups: `register`, `pong`, `stopped`, `started`, `deregister`, `broken`, `follow`.

A registered member's stream always asks for orders; what it hears is printed as `order NAME: ...`. `follow` lets
members do at once what they are told, `follow GROUP none` lets them only listen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.core.model import events as central
from muster.coordinator.core.model.effects import (
    NOTHING_COMMITTED,
    CentralReply,
    Order,
    Ping,
    RebalanceFailed,
    StartFetcher,
    StopFetcher,
)
from muster.coordinator.core.model.types import CommittedOffset
from muster.coordinator.errors import ErrorCode
from tests.support.stories.story import milliseconds, pairs, topic_partition


@dataclass
class CentralSide:
    """What a central member remembers."""

    stream: int = 0
    options: dict[str, str] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    """kind of order -> its number"""
    generation: int = -1
    owned: tuple[tuple[str, int], ...] = ()


class CentralStage:
    """Mixed into `Stage`, which gives it the shard, the clock and the clients."""

    def __init__(self) -> None:
        self.centrals: dict[tuple[str, str], CentralSide] = {}
        self.streams: dict[int, tuple[str, str]] = {}
        self.registering: dict[int, tuple[str, str]] = {}
        self.obedient: set[str] = set()
        self.to_do: list[tuple[str, str, Order]] = []
        self.waits: dict[int, tuple[str, str]] = {}
        self.to_wait: list[tuple[str, str]] = []

    def do_follow(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """follow GROUP: its members stop and start as they are told, and answer pings; none: they only listen."""
        group, *rest = words
        self.obedient.discard(group)
        if rest != ["none"]:
            self.obedient.add(group)
        yield "ok"

    def do_register(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """register GROUP NAME [client=] [topics=t] [regex=] [assignor=range] [session=6000ms] [owned= generation=]

        `still` says what it was given last; `again` uses the open stream.
        """
        group, name, *rest = words
        side = self.central_side(group, name)
        flags = {word for word in rest if word in ("still", "again")}
        said = pairs([word for word in rest if word not in flags and "-" not in word.split("=")[0]])
        offsets = [word for word in rest if word not in flags and "-" in word.split("=")[0]]
        once = {word: said.pop(word) for word in ("owned", "generation") if word in said}
        side.options.update(said)
        options = side.options
        owned = tuple(topic_partition(word) for word in once.get("owned", "").split(",") if word)
        generation = int(once.get("generation", -1))
        if "still" in flags:
            owned, generation = side.owned, side.generation
        request = self.request("register", self.client(group, name))
        default_topics = "" if "regex" in options else "t"
        event = central.RegisterConsumer(
            request,
            group,
            options.get("id", name),
            options.get("client", name),
            "host",
            milliseconds(options.get("session", "6000ms")),
            tuple(word for word in options.get("topics", default_topics).split(",") if word),
            options.get("regex", ""),
            options.get("assignor", "range"),
            generation,
            owned,
            offsets_from(offsets),
            side.stream if "again" in flags else central.NEW_STREAM,
            rights=self.rights_of(name),
        )
        if "again" not in flags:
            self.registering[request] = (group, name)
        yield from self.obeyed(self.asked(event))

    def do_pong(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        yield from self.answered_order(central.PingAnswered, "ping", "pong", words)

    def do_stopped(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        yield from self.answered_order(central.FetcherStopped, "stop", "stopped", words)

    def do_started(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        yield from self.answered_order(central.FetcherStarted, "start", "started", words)

    def do_deregister(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """deregister GROUP NAME [reason=WHY] [t-0=OFFSET ...]"""
        group, name, *rest = words
        side = self.central_side(group, name)
        said = pairs([word for word in rest if word.startswith("reason=")])
        offsets = offsets_from([word for word in rest if not word.startswith("reason=")])
        request = self.request("deregister", self.client(group, name))
        event = central.Deregister(request, group, name, side.stream, offsets, said.get("reason", ""))
        self.streams.pop(side.stream, None)
        yield from self.obeyed(self.asked(event))

    def do_broken(self: Any, words: list[str], _lines: list[str]) -> Iterator[str]:
        """broken GROUP NAME: the member's stream breaks; nothing that was said on it is heard any more."""
        group, name = words
        stream = self.central_side(group, name).stream
        self.streams.pop(stream, None)
        yield from self.obeyed(self.step(central.StreamClosed(group, name, stream))) or ["quiet"]

    def answered_order(self: Any, kind: Any, word: str, label: str, words: list[str]) -> Iterator[str]:
        group, name, *rest = words
        side = self.central_side(group, name)
        said = pairs([part for part in rest if part.startswith(("number=", "stream="))])
        number = int(said.get("number", side.last.get(word, 0)))
        stream = side.stream if said.get("stream") != "old" else side.stream - 1
        request = self.request(label, self.client(group, name))
        arguments = (request, group, name, stream, number)
        offsets = offsets_from([part for part in rest if not part.startswith(("number=", "stream="))])
        event = kind(*arguments) if kind is central.FetcherStarted else kind(*arguments, offsets)
        yield from self.obeyed(self.asked(event))

    def heard_central(self: Any, request: int, reply: CentralReply) -> Iterator[str]:
        """Lines for a reply to a stream that waits; a registration opens the stream."""
        if request in self.registering:
            group, name = self.registering.pop(request)
            if reply.code is ErrorCode.NONE:
                self.central_side(group, name).stream = request
                self.streams[request] = (group, name)
                self.to_wait.append((group, name))
            return
        if request not in self.waits:
            return
        group, name = self.waits.pop(request)
        side = self.central_side(group, name)
        if reply.code:
            self.streams.pop(side.stream, None)
            yield f"order {name}: stream over, {reply.code.name}"
            return
        for order in reply.orders:
            yield f"order {name}: {describe_order(order)}"
            self.note_order(group, name, side, order)
        self.to_wait.append((group, name))

    def note_order(self: Any, group: str, name: str, side: CentralSide, order: Order) -> None:
        match order:
            case Ping():
                side.last["ping"] = order.number
            case StopFetcher():
                side.last["stop"] = order.number
                side.generation, side.owned = -1, ()
            case StartFetcher():
                side.last["start"] = order.number
                side.generation = order.generation
                side.owned = tuple((topic, partition) for topic, partition, _ in order.partitions)
            case RebalanceFailed():
                return
        if group in self.obedient:
            self.to_do.append((group, name, order))

    def obeyed(self: Any, lines: list[str]) -> list[str]:
        """Do what members were told to, until nobody is told anything any more."""
        lines = [*lines, *self.ask_for_orders()]
        while self.to_do:
            group, name, order = self.to_do.pop(0)
            side = self.central_side(group, name)
            if side.stream not in self.streams:
                continue
            request = self.request("silently", self.client(group, name))
            kinds = {
                Ping: central.PingAnswered,
                StopFetcher: central.FetcherStopped,
                StartFetcher: central.FetcherStarted,
            }
            lines += self.step(kinds[type(order)](request, group, name, side.stream, order.number))
            lines += self.ask_for_orders()
        return [line for line in lines if not line.startswith("reply silently")]

    def ask_for_orders(self: Any) -> list[str]:
        """Every stream that has delivered something waits again."""
        lines: list[str] = []
        while self.to_wait:
            group, name = self.to_wait.pop(0)
            side = self.central_side(group, name)
            if side.stream not in self.streams:
                continue
            request = self.request("silently", self.client(group, name))
            self.waits[request] = (group, name)
            lines += self.step(central.AwaitOrders(request, group, name, side.stream))
        return lines

    def central_side(self, group: str, name: str) -> CentralSide:
        return self.centrals.setdefault((group, name), CentralSide())


def offsets_from(words: list[str]) -> central.Offsets:
    found = []
    for word in words:
        where, _, offset = word.partition("=")
        found.append((*topic_partition(where), CommittedOffset(int(offset))))
    return tuple(found)


def describe_order(order: Order) -> str:
    match order:
        case Ping():
            return f"ping #{order.number}"
        case StopFetcher():
            return f"stop #{order.number} ({order.cause.name})"
        case StartFetcher():
            cells = ",".join(
                f"{topic}-{partition}" + ("" if offset == NOTHING_COMMITTED else f"@{offset}")
                for topic, partition, offset in order.partitions
            )
            return f"start #{order.number} generation={order.generation} {cells or 'nothing'}"
        case RebalanceFailed():
            return f"failed: {order.detail}"
