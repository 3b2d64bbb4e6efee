"""The page as people meet it: a real Chromium on a real node."""

import os
import signal
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest

from muster.workshop.bench.web_costs import LARGE, StandInNode, make_app
from tests.support.chromium import EVIL_CLIENT, EVIL_GROUP, EVIL_TOPIC, SETTINGS, Seeded, Watched, listening, wait_until
from tests.support.node import running_node
from tests.support.pace import pace

EVIL = f"/groups/{quote(EVIL_GROUP, safe='')}"
PAGES = (
    "/", "/topics", "/topics/orders", "/nodes", "/ledger", "/groups/billing", "/groups/billing?by=rate",
    "/groups/billing/rebalances/1", "/groups/billing/what-if?assignor=sticky&add=2", "/groups/billing/advice", EVIL,
    f"{EVIL}/rebalances/1", f"{EVIL}/advice",
)  # fmt: skip
SECOND = 1_000


def rows_of(page: Any) -> list[str]:
    return [each.inner_text() for each in page.locator(".map-row .who b").all()]


def test_a_stranger_sees_who_owns_what_and_what_moved_last(watched: Watched) -> None:
    page = watched.open("/groups/billing")
    assert rows_of(page) == ["billing-1", "billing-2"]
    assert page.locator(".cell:not(.gone)").count() == 10
    assert "billing-2 joined; it took" in page.locator(".last").inner_text()
    page.locator("#live[hx-get]").wait_for()
    page.locator(".live[data-state=live]").wait_for()
    assert watched.wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_fits_and_says_nothing_to_the_console(
    chromium: Any, seeded: Seeded, scheme: str, width: int, axe: str
) -> None:
    watched = Watched(chromium, seeded.url, color_scheme=scheme, viewport={"width": width, "height": 900})
    for path in PAGES:
        page = watched.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.evaluate(axe)
        found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        bad = [
            (each["id"], each["nodes"][0]["html"][:200]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert bad == [], f"{path} at {width} in {scheme}"
    watched.context.close()
    assert watched.wrong == []


def test_a_rebalance_is_seen_as_it_happens(watched: Watched, seeded: Seeded) -> None:
    page = watched.open("/groups/billing")
    page.locator(".live[data-state=live]").wait_for()
    reader = seeded.join("billing", "billing-3", ["orders", "payments"])
    page.locator(".last", has_text="billing-3 joined").wait_for(timeout=SECOND * pace())
    assert "billing-3" in rows_of(page)
    reader.leave()
    seeded.readers.remove(reader)
    wait_until(lambda: len(seeded.admin.describe_group("billing").members) == 2)
    page.locator(".last", has_text="billing-3 left").wait_for()
    assert watched.wrong == []


def test_topics_say_what_they_hold(watched: Watched) -> None:
    page = watched.open("/topics")
    row = page.locator("tbody tr", has=page.get_by_role("link", name="orders", exact=True))
    assert row.locator("td[data-h=records]").inner_text() == "60"
    room = row.locator("td[data-h='on disk']").inner_text()
    assert room.endswith("KiB")
    page.get_by_role("link", name="orders", exact=True).click()
    assert page.locator(".tile", has_text="On disk").locator("dd").inner_text() == room
    assert page.locator("#partitions tbody tr").count() == 6
    assert page.locator("#readers tbody tr").count() == 1


def test_names_full_of_html_are_text(watched: Watched) -> None:
    page = watched.open("/")
    page.get_by_role("link", name=EVIL_GROUP, exact=True).click()
    page.wait_for_url(lambda url: url.endswith(EVIL))
    assert page.locator("h1").inner_text() == EVIL_GROUP
    assert EVIL_CLIENT in rows_of(page)[0]
    assert page.locator(".topic > span").first.inner_text() == EVIL_TOPIC
    assert page.locator("main script, main img").count() == 0
    assert watched.wrong == []


def test_a_group_called_by_dots_is_reached_and_what_turns_writing_round_is_spelt_out(
    watched: Watched, seeded: Seeded
) -> None:
    """Browsers resolve `..` away, escaped or not; a form that sent what is shown would speak of another member."""
    reader = seeded.join("..", "txt\u202egpj\x07", ["payments"])
    page = watched.open("/")
    page.get_by_role("link", name="..", exact=True).click()
    assert page.locator("h1").inner_text() == ".."
    assert rows_of(page) == ["txt\\u202egpj\\x07"]
    page.locator("#act-remove summary").click()
    page.locator("#act-remove button").click()
    assert "1 of 1 member would be removed" in page.locator(".notice").inner_text()
    page.get_by_role("link", name="No", exact=True).click()
    page.locator(".last a").click()
    assert page.title().startswith("Rebalance 1 of ..")
    assert watched.wrong == []
    reader.leave()
    seeded.readers.remove(reader)


def test_pages_that_nobody_looks_at_leave_the_browser_its_connections(watched: Watched) -> None:
    """A browser has six to a host: with a stream for each page, the seventh would never load."""
    hide = "Object.defineProperty(document, 'hidden', {value: true})"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    for _ in range(8):
        page = watched.context.new_page()
        page.goto(f"{watched.url}/groups/billing")
        page.locator(".live[data-state=live]").wait_for()
        page.evaluate(f"{hide}; {tell}")


def test_a_page_says_when_its_group_is_gone(watched: Watched, seeded: Seeded) -> None:
    reader = seeded.join("for-now", "visitor", ["payments"])
    page = watched.open("/groups/for-now")
    page.locator(".live[data-state=live]").wait_for()
    reader.leave()
    seeded.readers.remove(reader)
    wait_until(lambda: not seeded.admin.describe_group("for-now").members)
    seeded.admin.delete_groups(["for-now"], "tried enough")
    page.locator("#lost", has_text="there is no group 'for-now'").wait_for()
    assert page.locator("h1").inner_text() == "for-now", "what was known stays"
    watched.open("/groups/for-now")
    assert page.url.endswith("/ledger?group=for-now")
    page.locator(".events", has_text="An operator deleted the group").wait_for()
    page.locator(".events summary").first.click()
    assert page.locator(".events", has_text="operator at 127.0.0.1 (tried enough) deleted the group").is_visible()


def test_a_click_opens_the_whole_explanation_by_keyboard_too(watched: Watched) -> None:
    page = watched.open("/groups/billing")
    incident = page.locator(".events details", has_text="Permanent address of this rebalance").first
    rebalance = incident.locator("details").first
    assert not rebalance.locator(".facts").is_visible()
    for opened in (incident, rebalance):
        opened.locator("> summary").focus()
        page.keyboard.press("Enter")
    assert rebalance.locator(".facts").is_visible()
    rebalance.get_by_role("link", name="Permanent address of this rebalance").click()
    assert "/groups/billing/rebalances/" in page.url
    assert page.locator("h2", has_text="Explanation").is_visible()


def test_an_act_says_first_what_it_would_do(watched: Watched, seeded: Seeded) -> None:
    reader = seeded.join("short-lived", "visitor", ["payments"])
    page = watched.open("/groups/short-lived")
    page.locator("#act-delete summary").click()
    page.locator("#act-delete button").click()
    assert "has 1 member; stop them first" in page.locator("main").inner_text(), "refused, in words"
    watched.page.goto(f"{watched.url}/groups/short-lived")
    page.locator("#act-remove summary").click()
    page.locator("#act-remove button").click()
    assert "1 of 1 member would be removed; they hold 4 partitions" in page.locator(".notice").inner_text()
    assert len(seeded.admin.describe_group("short-lived").members) == 1, "nothing has been done yet"
    page.locator("input[name=reason]").fill("it is in the way")
    page.get_by_role("button", name="Yes, do it").click()
    assert "1 of 1 member were removed" in page.locator(".notice").inner_text()
    assert any("it is in the way" in each.detail for each in seeded.admin.explain("short-lived"))
    reader.leave()
    seeded.readers.remove(reader)


def test_what_is_held_is_said_above_all_and_ended_from_there(watched: Watched, seeded: Seeded) -> None:
    """Of a group that plans itself a freeze keeps what loses its owner: the page says what the coordinator says."""
    reader = seeded.join("held", "visitor", ["payments"])
    page = watched.open("/groups/held")
    page.locator("#act-freeze summary").click()
    page.locator("#act-freeze select[name=for_ms]").select_option(label="1 hour")
    page.locator("#act-freeze button").click()
    page.locator("input[name=reason]").fill("release day")
    page.get_by_role("button", name="Yes, do it").click()
    page.get_by_role("link", name="Back to the group").click()
    assert "freeze, partitions that lose their owner stay unowned, until" in page.get_by_text("Held:").inner_text()
    assert seeded.admin.group_holds("held").orphans == "keep"
    assert any("release day" in each.detail for each in seeded.admin.explain("held"))
    page.locator("#act-resume summary").click()
    page.locator("#act-resume button").click()
    page.get_by_role("button", name="Yes, do it").click()
    assert seeded.admin.group_holds("held").orphans is None
    reader.leave()
    seeded.readers.remove(reader)


def test_no_foreign_page_can_act(seeded: Seeded) -> None:
    body = urlencode({"act": "remove", "member": "anybody"})
    for token in ("", "a.b.c"):
        answer = httpx.post(f"{seeded.url}/groups/billing/act", content=f"{body}&token={token}")
        assert answer.status_code == 403
    assert httpx.post(f"{seeded.url}/groups/billing").status_code == 405


def test_ten_thousand_partitions_are_looked_at_without_a_stumble(chromium: Any) -> None:
    with listening(make_app(StandInNode(members=1_000, partitions=10_000, groups=1_000))) as url:
        watched = Watched(chromium, url, viewport={"width": 390, "height": 844})
        page = watched.open(f"/groups/{LARGE}")
        assert page.locator(".bars li:not(.bars-head)").count() == 1_000
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator(".chart canvas").wait_for()
        watched.open("/")
        assert page.locator("tbody tr").count() == 100
        page.get_by_role("link", name="Next").click()
        page.get_by_text("page 2 of 10").wait_for()
        watched.context.close()
    assert watched.wrong == []


def test_the_legend_of_lag_tells_the_last_figures_where_no_pointer_is(chromium: Any) -> None:
    with listening(make_app(StandInNode(members=10, partitions=100, groups=3))) as url:
        watched = Watched(chromium, url, viewport={"width": 1280, "height": 900})
        page = watched.open(f"/groups/{LARGE}")
        page.locator(".chart canvas").wait_for()

        def told() -> list[str]:
            return [each.inner_text() for each in page.locator(".chart .u-legend .u-value").all()]

        last = told()
        assert last
        assert not {"", "--", "–"} & {*last}, last
        page.locator(".chart").scroll_into_view_if_needed()
        plot = page.locator(".chart .u-over").bounding_box()
        page.mouse.move(plot["x"] + 5, plot["y"] + 20)
        assert told() != last  # the first figures, of another time
        page.mouse.move(5, 5)
        assert told() == last
        watched.context.close()
    assert watched.wrong == []


@pytest.mark.parametrize("width", [1280, 820, 390])
def test_an_address_of_a_member_stands_in_one_line(chromium: Any, seeded: Seeded, width: int) -> None:
    watched = Watched(chromium, seeded.url, viewport={"width": width, "height": 900})
    page = watched.open("/groups/billing")
    hosts = page.locator("td.host").all()
    assert len(hosts) == 2
    for host in hosts:
        assert "127.0.0.1" in host.inner_text()
        lines = host.evaluate("""(cell) => {
            const range = document.createRange(); range.selectNodeContents(cell);
            return new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size; }""")
        assert lines == 1
    watched.context.close()


def test_without_a_script_everything_but_liveness_is_there(chromium: Any, seeded: Seeded) -> None:
    watched = Watched(chromium, seeded.url, java_script_enabled=False)
    page = watched.open("/groups/billing")
    assert {"billing-1", "billing-2"} <= set(rows_of(page))
    page.locator(".events summary").first.click()
    page.locator(".events details details > summary").first.click()
    assert page.locator(".events .facts").first.is_visible()
    page.locator("#what-if button").click()
    assert "What if" in page.locator("h1").inner_text()
    page.go_back()
    page.locator("#what-if [name=add]").fill("2")
    page.locator("#what-if [name=remove]").select_option(index=[0, 1])
    page.locator("#what-if button").click()
    asked = page.locator("main").inner_text()
    assert "2 members came and billing-1 and billing-2 left" in asked
    watched.open("/?q=bill")
    assert page.locator("tbody tr").count() == 1
    watched.context.close()


def test_a_node_that_stands_still_is_said_to_be_silent(chromium: Any, tmp_path: Any) -> None:
    """Its connections stay open: nothing but what is not heard tells it from a quiet one."""
    with running_node(tmp_path / "data", SETTINGS) as node:
        watched = Watched(chromium, f"http://{node.http}")
        watched.page.clock.install()
        page = watched.open("/")
        page.locator(".live[data-state=live]").wait_for()
        os.kill(node.pid, signal.SIGSTOP)
        try:
            page.clock.run_for(12 * SECOND)
            page.locator("#lost", has_text="The node has not answered since").wait_for()
            assert page.locator(".live").inner_text() == "no answer, trying again"
        finally:
            os.kill(node.pid, signal.SIGCONT)
        page.locator(".live[data-state=live]").wait_for()
        assert page.locator("#lost").is_hidden()
        watched.context.close()
    assert watched.wrong == []


def test_a_page_finds_its_node_again_after_a_restart(chromium: Any, tmp_path: Any) -> None:
    with running_node(tmp_path / "data", SETTINGS) as node:
        watched = Watched(chromium, f"http://{node.http}")
        page = watched.open("/")
        page.locator(".live[data-state=live]").wait_for()
        node.stop()
        page.locator(".live[data-state=lost]").wait_for()
        node.start()
        page.locator(".live[data-state=live]").wait_for()
        watched.context.close()
    # The browser and htmx say that nobody listened for a while; the page has nothing to add.
    assert [text for text in watched.wrong if "ERR_" not in text and "htmx:" not in text] == []
