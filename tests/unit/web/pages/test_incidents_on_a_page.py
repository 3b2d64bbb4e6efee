"""What a group's page says of incidents, and its largest letters of waits."""

from muster.coordinator.observability.views.incidents import find_incidents
from muster.coordinator.observability.views.member_names import names_of
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance, RebalancePhase
from muster.coordinator.web.pages.rebalance_view import incident_timeline, incident_view, rebalance_view
from tests.support.ledger_entries import BEGIN_MS, ledger_entry, member_id

START = ledger_entry(1, "MEMBER_JOINED", 0, ["a", "b"], by="a")
LEFT = ledger_entry(2, "MEMBER_LEFT", 3600, ["b"], by="a", moves=[("a", "b")])
BACK = ledger_entry(3, "MEMBER_JOINED", 3604, ["a2", "b"], by="a2", moves=[("b", "a2")])


def test_an_incident_has_its_rebalances_newest_first_and_addresses_of_those_not_shown() -> None:
    entries = [START, LEFT, BACK]
    names = names_of(entries)
    _, restart = find_incidents(entries, names)
    view = incident_view(restart, "g", {3: rebalance_view(BACK, names, 0)})
    assert view.sentence == "a restarted; it was away for 4.00 s."
    assert view.figures == "2 rebalances, 2 partitions moved, 0 partition-seconds without an owner"
    assert [each.number for each in view.rebalances] == [3]
    assert view.more == ((2, "/groups/g/rebalances/2"),)


def test_the_line_of_time_has_a_mark_for_each_incident() -> None:
    entries = [START, LEFT, BACK]
    drawn = str(incident_timeline(find_incidents(entries, names_of(entries)), "g", BEGIN_MS + 3_700_000))
    assert drawn.count("<circle") == 2
    assert "a restarted; it was away for 4.00 s." in drawn
    assert "/groups/g/rebalances/3" in drawn


def test_the_largest_letters_name_who_did_not_come_and_nobody_who_did() -> None:
    """`43.78 s of it waiting for billing-1`, which was healthy."""
    entry = ledger_entry(
        2, "MEMBER_JOINED", 0, ["a", "c"], by="c", waits={"b": ("EXPIRED", 4.88), "a": ("JOINED", 0.9)}
    )
    view = rebalance_view(entry, names_of([entry]), 0)
    assert (view.waited_for, view.waited) == ("b", "4.88 s, which never came: it expired")


def test_of_an_older_entry_nobody_is_said_to_have_been_waited_for() -> None:
    old = Rebalance(number=1, phases=[RebalancePhase(name="join", duration_ms=43_780, waited_for=[member_id("a")])])
    view = rebalance_view(old, names_of([old]), 0)
    assert (view.waited_for, view.waits_known) == ("", False)
