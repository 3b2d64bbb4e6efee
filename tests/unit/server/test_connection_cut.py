"""A connection is found among all open files of the process and shut; the others are as they were, and as many."""

import os
import socket

import pytest

from muster.coordinator.server.grpc.load_limits import OPEN_FILES, cut_connection


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="open files are listed by Linux only")
def test_looking_for_a_connection_leaves_no_open_file_behind() -> None:
    """Each look copied every open file, and kept the copies of those that are no sockets."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        open(os.devnull, "rb"),
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0],
    ):
        host, port = client.getsockname()
        before = len(os.listdir(OPEN_FILES))
        assert cut_connection(f"ipv4:{host}:{port}")
        assert not cut_connection("ipv4:127.0.0.1:1")
        assert len(os.listdir(OPEN_FILES)) == before
        assert client.recv(1) == b""
