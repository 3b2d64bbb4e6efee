"""The words of stories about what operators hold of a group."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.coordinator.core.model import events
from muster.coordinator.core.model.events import (
    AskDeploy,
    AskDrain,
    AskFreeze,
    AskPin,
    DescribeHolds,
    EndDeploy,
    EndFreeze,
    HoldGroup,
    OverrideEnd,
    OverrideRequest,
    ResumeGroup,
    Undrain,
    Unpin,
)
from muster.coordinator.core.model.records import By, Orphans
from tests.support.stories.story import milliseconds, pairs

if TYPE_CHECKING:
    from tests.support.stories.classic_stage import Client

OPERATOR = "operator at here"


class ControlStage:
    """Part of the stage: every verb takes [version=N] [dry], those that begin something [for=15m]."""

    if TYPE_CHECKING:

        def client(self, group: str, name: str) -> Client: ...
        def request(self, kind: str, client: Client) -> int: ...
        def asked(self, event: events.Request) -> list[str]: ...

    def do_freeze(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """freeze GROUP [orphans=keep|give]"""
        options = pairs([word for word in words[1:] if word != "dry"])
        orphans = Orphans(options["orphans"]) if "orphans" in options else None
        yield from self.held("freeze", AskFreeze(orphans), words)

    def do_deploy(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """deploy GROUP expect=N"""
        options = pairs([word for word in words[1:] if word != "dry"])
        yield from self.held("deploy", AskDeploy(int(options["expect"])), words)

    def do_drain(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """drain GROUP by=client-id|instance|host|member-id name=NAME"""
        options = pairs([word for word in words[1:] if word != "dry"])
        yield from self.held("drain", AskDrain(By(options["by"]), options["name"]), words)

    def do_pin(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """pin GROUP at=t-3 name=NAME"""
        options = pairs([word for word in words[1:] if word != "dry"])
        topic, _, partition = options["at"].rpartition("-")
        yield from self.held("pin", AskPin(topic, int(partition), options["name"]), words)

    def do_resume(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        """resume GROUP [freeze|deploy]"""
        end: OverrideEnd | None = EndFreeze() if "freeze" in words else EndDeploy() if "deploy" in words else None
        yield from self.ended("resume", end, [word for word in words if word not in ("freeze", "deploy")])

    def do_undrain(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        options = pairs([word for word in words[1:] if word != "dry"])
        yield from self.ended("undrain", Undrain(By(options["by"]), options["name"]), words)

    def do_unpin(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        topic, _, partition = pairs([word for word in words[1:] if word != "dry"])["at"].rpartition("-")
        yield from self.ended("unpin", Unpin(topic, int(partition)), words)

    def do_holds(self, words: list[str], _lines: list[str]) -> Iterator[str]:
        yield from self.asked(DescribeHolds(self.request("holds", self.client(words[0], "*")), words[0]))

    def held(self, kind: str, ask: OverrideRequest, words: list[str]) -> list[str]:
        options = pairs([word for word in words[1:] if word != "dry"])
        event = HoldGroup(
            self.request(kind, self.client(words[0], "*")),
            words[0],
            ask,
            milliseconds(options["for"]) if "for" in options else None,
            int(options["version"]) if "version" in options else None,
            "dry" in words,
            OPERATOR,
        )
        return self.asked(event)

    def ended(self, kind: str, end: OverrideEnd | None, words: list[str]) -> list[str]:
        options = pairs([word for word in words[1:] if word != "dry"])
        version = int(options["version"]) if "version" in options else None
        request = self.request(kind, self.client(words[0], "*"))
        return self.asked(ResumeGroup(request, words[0], end, version, "dry" in words, OPERATOR))
