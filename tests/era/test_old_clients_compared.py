"""`muster lab compare --real-old-clients`: consumers of two old releases and ours go through the same events."""

from pathlib import Path

import pytest

from muster.workshop.lab import old_clients
from tests.era.releases import jars_of

pytestmark = pytest.mark.integration


@pytest.mark.timeout(300)
def test_old_consumers_and_ours_wake_as_many_and_own_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_jars(name: str) -> list[Path]:
        return sorted(jars_of(name.rpartition(":")[2]).glob("*.jar"))

    for name in old_clients.RELEASES.values():
        find_jars(name)  # skips where they are not there
    monkeypatch.setattr(old_clients, "find_jars", find_jars)
    found = list(old_clients.compare_old_clients(3, 8))
    events = [("join of all", 3), ("one joins", 4), ("one leaves", 3)]
    kinds = [*old_clients.RELEASES, old_clients.OURS]
    assert [(row.client, row.event, row.consumers) for row in found] == [
        (client, event, consumers) for client in kinds for event, consumers in events
    ]
    for row in found:
        if row.event != "join of all":
            assert row.watches_fired >= 3, f"all are woken: {row}"
        assert row.requests > row.consumers**2, f"each reads each: {row}"
