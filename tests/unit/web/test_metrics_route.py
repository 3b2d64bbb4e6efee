"""/metrics as HTTP answers it; what is in it is the node's."""

import gzip

from tests.fakes.asked_node import AskedNode
from tests.support.web import get

LARGE = [b"%d\n" % number * 2_000 for number in range(100)]


def test_what_the_node_says_goes_out_as_it_is() -> None:
    node = AskedNode()
    answer = get(node, "/metrics", accept="text/plain", accept_encoding="identity")
    assert answer.text == "# TYPE a gauge\na 1\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "content-encoding" not in answer.headers
    assert node.accepted == ["text/plain"]


def test_large_and_small_answers_are_compressed_for_whoever_takes_it() -> None:
    node = AskedNode()
    for pieces in (node.exposition, LARGE):
        node.exposition = pieces
        answer = get(node, "/metrics", accept_encoding="gzip, deflate")
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.content == b"".join(pieces)  # httpx has undone it
        assert get(node, "/metrics", accept_encoding="gzip;q=0").headers.get("content-encoding") is None


def test_pieces_are_one_gzip_stream() -> None:
    from muster.coordinator.web.http.monitoring import compress_pieces

    assert gzip.decompress(b"".join(compress_pieces(LARGE))) == b"".join(LARGE)
