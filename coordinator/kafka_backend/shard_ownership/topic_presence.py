"""Which topics exist, by what brokers report, and above all when a topic is gone (KB-T1, KB-T4).

Offsets and subscriptions disappear with a topic, and nothing brings them back. So an answer that is merely shorter
than the one before removes nothing: rights may have been taken away, or the broker may be behind. A topic that it
leaves out is `unseen` and stays as it was, until two brokers, one a good while after the other, have answered that
they know neither its name *nor* its id. The same name with another id is another topic, immediately; an id that
went never comes back, whatever a broker reports that is behind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

UNKNOWN_NAME, UNKNOWN_ID = 3, 100
NO_ID = bytes(16)
"""Of a topic whose id nobody has told yet."""

ASK_AGAIN_MS = 5_000
"""How long to wait for another broker's word, and after one that said nothing useful."""

MOST_REMEMBERED = 8
"""Ids of a name that went."""


class UpstreamTopic(NamedTuple):
    """id: 16 bytes, Kafka's. partitions: how many."""

    id: bytes
    partitions: int


class TopicPresenceChange(NamedTuple):
    """What became of topics. gone: with the ids that went. created, grown: as they are now; one whose id was not known
    has grown as well."""

    created: Mapping[str, UpstreamTopic]
    grown: Mapping[str, UpstreamTopic]
    gone: Mapping[str, bytes]

    def __bool__(self) -> bool:
        return bool(self.created or self.grown or self.gone)


class TopicQuestion(NamedTuple):
    """Metadata is to be asked about a topic, by its name and by its id, of another broker than `besides` (-1: any)."""

    name: str
    id: bytes
    besides: int


@dataclass(slots=True)
class TopicUnseen:
    """since_ms: when an answer first left it out. broker: the one that knew neither name nor id, at said_ms."""

    since_ms: int
    ask_ms: int
    broker: int = -1
    said_ms: int = 0


@dataclass(slots=True)
class _KnownTopic:
    topic: UpstreamTopic
    unseen: TopicUnseen | None = None


@dataclass(slots=True)
class _ChangeDraft:
    created: dict[str, UpstreamTopic] = field(default_factory=dict)
    grown: dict[str, UpstreamTopic] = field(default_factory=dict)
    gone: dict[str, bytes] = field(default_factory=dict)

    def done(self) -> TopicPresenceChange:
        return TopicPresenceChange(self.created, self.grown, self.gone)


class TopicPresence:
    """Moments are ms of the node's clock."""

    def __init__(self, gone_after_ms: int = 60_000) -> None:
        """gone_after_ms: `engine.kafka.topic.gone.after.ms`."""
        self._gone_after_ms = gone_after_ms
        self._topics: dict[str, _KnownTopic] = {}
        self._former: dict[str, list[bytes]] = {}

    @property
    def topics(self) -> dict[str, UpstreamTopic]:
        """All that are, unseen ones too."""
        return {name: known.topic for name, known in self._topics.items()}

    def unseen(self, now_ms: int) -> dict[str, int]:
        """For how long each topic has been left out; for people."""
        return {
            name: now_ms - known.unseen.since_ms for name, known in self._topics.items() if known.unseen is not None
        }

    @property
    def disowned(self) -> frozenset[str]:
        """Unseen topics of which a broker has answered that it knows neither name nor id."""
        return frozenset(
            name for name, known in self._topics.items() if known.unseen is not None and known.unseen.broker != -1
        )

    def heard(self, topics: Mapping[str, UpstreamTopic], now_ms: int) -> TopicPresenceChange:
        """Metadata of all topics, as one broker told it; those with an error are to be left out."""
        draft = _ChangeDraft()
        for name, topic in topics.items():
            self._saw(name, topic, draft)
        for name, known in self._topics.items():
            if name not in topics and known.unseen is None:
                known.unseen = TopicUnseen(now_ms, now_ms)
        return draft.done()

    def learn_some(self, topics: Mapping[str, UpstreamTopic]) -> TopicPresenceChange:
        """Metadata of some topics: says nothing of others."""
        draft = _ChangeDraft()
        for name, topic in topics.items():
            self._saw(name, topic, draft)
        return draft.done()

    def recalled(self, topics: Mapping[str, UpstreamTopic], now_ms: int) -> TopicPresenceChange:
        """Topics in which groups have positions, as the state log has them. One that no answer has told of since this
        process began may be gone, or not shown to us: it is there, and unseen, until brokers say otherwise. Its
        partitions are at least those with positions; its id is NO_ID where no position has one."""
        draft = _ChangeDraft()
        for name, topic in topics.items():
            if name in self._topics:
                continue
            if topic.id in self._former.get(name, ()):
                draft.gone[name] = topic.id
            else:
                self._topics[name] = _KnownTopic(topic, TopicUnseen(now_ms, now_ms))
                draft.created[name] = topic
        return draft.done()

    def _saw(self, name: str, topic: UpstreamTopic, draft: _ChangeDraft) -> None:
        if topic.id in self._former.get(name, ()):
            return
        known = self._topics.get(name)
        if known is not None and known.topic.id not in (topic.id, NO_ID):
            self._goes(name, draft)
            known = None
        if known is None:
            self._topics[name] = _KnownTopic(topic)
            draft.created[name] = topic
            return
        known.unseen = None
        count = max(topic.partitions, known.topic.partitions)
        if (topic.id, count) != known.topic:
            known.topic = draft.grown[name] = UpstreamTopic(topic.id, count)

    def _goes(self, name: str, draft: _ChangeDraft) -> None:
        gone = self._topics.pop(name).topic.id
        draft.gone[name] = gone
        self._former[name] = [*self._former.get(name, ())[1 - MOST_REMEMBERED :], gone]

    def questions(self, now_ms: int) -> list[TopicQuestion]:
        """What is to be asked now; each is asked again, later, if no answer comes."""
        found = []
        for name, known in self._topics.items():
            if known.unseen is not None and known.unseen.ask_ms <= now_ms:
                known.unseen.ask_ms = now_ms + ASK_AGAIN_MS
                found.append(TopicQuestion(name, known.topic.id, known.unseen.broker))
        return found

    def answered(
        self, question: TopicQuestion, broker: int, name_code: int, id_code: int, now_ms: int, *, only: bool = False
    ) -> TopicPresenceChange:
        """What a broker said of the name, and of the id. Who knows one of them ends the doubt for now: the next whole
        answer that leaves the topic out begins anew. Another error says nothing. only: there is no other broker, so
        that its own word counts a second time."""
        draft = _ChangeDraft()
        known = self._topics.get(question.name)
        if known is None or known.unseen is None or known.topic.id != question.id:
            return draft.done()
        unseen = known.unseen
        if 0 in (name_code, id_code):
            known.unseen = None
        elif (name_code, id_code) == (UNKNOWN_NAME, UNKNOWN_ID):
            if unseen.broker == -1:
                unseen.broker, unseen.said_ms = broker, now_ms
                unseen.ask_ms = now_ms + self._gone_after_ms
            elif (only or broker != unseen.broker) and now_ms - unseen.said_ms >= self._gone_after_ms:
                self._goes(question.name, draft)
        return draft.done()

    def wish(self) -> int | None:
        """When to ask `questions` again, at the latest."""
        return min(_moments(self._topics.values()), default=None)


def _moments(topics: Iterable[_KnownTopic]) -> Iterable[int]:
    return (known.unseen.ask_ms for known in topics if known.unseen is not None)
