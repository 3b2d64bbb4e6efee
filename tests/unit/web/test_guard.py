"""What every request is held to, and what goes back with every answer."""

import httpx
import pytest

from muster.coordinator.web.http.guard import MOST_HEADER_BYTES, MOST_HEADERS, name_of, segment_of, whole_segments
from tests.fakes.asked_node import AskedNode
from tests.support.web import browse, get


@pytest.mark.parametrize("path", ["/healthz", "/nothing", "/api/v1/nodes"])
def test_every_answer_has_the_security_headers(path: str) -> None:
    headers = get(AskedNode(), path).headers
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9291", "127.0.0.1:80", "[::1]:9291", "10.1.2.3", "localhost."]
)
def test_addresses_and_localhost_are_names_of_the_node(host: str) -> None:
    assert get(AskedNode(), "/healthz", host=host).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost:x", "[::1", "", "a@localhost"])
def test_a_request_by_a_foreign_name_is_refused(host: str) -> None:
    answer = get(AskedNode(), "/healthz", host=host)
    assert answer.status_code == 421
    assert answer.json()["error"]["code"] == "UNKNOWN_HOST"
    assert repr(host) in answer.json()["error"]["message"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_name_that_is_listed_is_the_node_s() -> None:
    async def visit(client: httpx.AsyncClient) -> None:
        for host, status in (("muster.example", 200), ("MUSTER.example:9291", 200), ("other.example", 421)):
            assert (await client.get("/healthz", headers={"host": host})).status_code == status

    browse(AskedNode(), visit, http_hosts="metrics.example, muster.example")


def test_headers_without_end_are_refused() -> None:
    many = {f"x{number}": "1" for number in range(MOST_HEADERS + 1)}
    assert get(AskedNode(), "/healthz", **many).status_code == 431
    assert get(AskedNode(), "/healthz", long="x" * (MOST_HEADER_BYTES + 1)).status_code == 431


def test_what_is_not_there_says_so_in_json() -> None:
    for path in ("/nothing", "/healthz/", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/%00"):
        answer = get(AskedNode(), path)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] == "NOT_FOUND"


def test_a_line_s_end_in_a_name_ends_no_route() -> None:
    """A pattern's `.` takes every character but that: a group of that name had no page."""
    assert whole_segments(b"/groups/a%0Ab%0D%0A") == "/groups/a%0Ab\r%0A"
    answer = get(AskedNode(), "/groups/a%0Ab/what-else")
    assert "There is no such thing" in answer.text


@pytest.mark.parametrize("name", [".", "..", "=..", "%2E%2E", "a/../b", "/", "a\\b", "\u202e\n", " "])
def test_every_name_has_an_address_that_a_browser_leaves_alone(name: str) -> None:
    """Dots alone stand for a folder, escaped or not: browsers resolve them away before they ask."""
    segment = segment_of(name)
    assert name_of(segment) == name
    assert segment.lower().replace("%2e", ".") not in (".", "..")
    said = get(AskedNode(), f"/groups/{segment}/rebalances/x").text
    assert "expected a number" in said
    assert whole_segments(f"/api/v1/groups/{segment}/lag".encode()).count("/") == 5


def test_a_method_that_is_not_for_a_path_says_so() -> None:
    async def visit(client: httpx.AsyncClient) -> None:
        answer = await client.delete("/healthz")
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")
        assert "GET" in answer.headers["allow"]

    browse(AskedNode(), visit)


def test_a_failure_tells_a_reference_and_nothing_of_the_inside() -> None:
    class Broken(AskedNode):
        def health(self) -> object:  # type: ignore[override]
            raise RuntimeError("secret")

    answer = get(Broken(), "/readyz")
    assert answer.status_code == 500
    assert "reference" in answer.json()["error"]["message"]
    assert "secret" not in answer.text
