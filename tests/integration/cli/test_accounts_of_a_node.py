"""The first user of a stopped node, then users and tokens of it while it runs, all by the command line."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from muster.cli.main import main
from tests.support.node import running_node

pytestmark = pytest.mark.integration
SETTINGS = {"authorizer": "acl", "super.users": "User:admin", "http.listeners": ""}


def muster(*arguments: str, token: str = "", code: int = 0) -> str:
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.dict("os.environ"), redirect_stdout(out), redirect_stderr(err):
        given = [*arguments, *(["--set", f"token={token}"] if token else [])]
        assert main(given) == code, err.getvalue()
    return out.getvalue() if not code else err.getvalue()


def test_from_an_empty_directory_to_a_revoked_token(tmp_path: Path) -> None:
    data, secret = tmp_path / "data", tmp_path / "password"
    secret.write_text("correct horse\n")
    named = ("--data", str(data), "--password-file", str(secret))
    admin = muster("storage", "bootstrap-user", *named, "--token", "admin").strip()
    assert admin.startswith("muster_")
    weak = tmp_path / "weak"
    weak.write_text("short")
    assert "5 bytes" in muster(
        "storage", "bootstrap-user", "--data", str(data), "--password-file", str(weak), "x", code=2
    )
    with running_node(data, SETTINGS) as node:
        at = ("--bootstrap", node.address)
        held = muster("storage", "bootstrap-user", "--data", str(data), "--token", "other", code=5)
        assert "in use" in held or "holds" in held or "locked" in held
        assert "token" in muster("users", "list", *at, code=1)
        muster("users", "add", *at, "--password-file", str(secret), "alice", token=admin)
        listed = json.loads(muster("users", "list", *at, "-o", "json", token=admin))
        assert [(row["user"], row["mechanisms"]) for row in listed] == [
            ("admin", "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"),
            ("alice", "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"),
        ]
        made = json.loads(muster("tokens", "create", *at, "--name", "ci", "--ttl", "90d", "-o", "json", token=admin))
        muster("topics", "list", *at, token=made["token"])
        muster("groups", "list", *at, token=made["token"])
        refused = muster("tokens", "list", *at, token=made["token"], code=1)
        assert "CLUSTER_AUTHORIZATION_FAILED" in refused
        rows = json.loads(muster("tokens", "list", *at, "-o", "json", token=admin))
        assert [row["name"] for row in rows] == ["admin", "ci"]
        assert rows[1]["expires"] is not None
        muster("tokens", "revoke", *at, made["token_id"], token=admin)
        muster("topics", "list", *at, token=made["token"], code=1)
        muster("tokens", "revoke", *at, made["token_id"], token=admin, code=3)
        muster("users", "delete", *at, "alice", token=admin)
        muster("users", "delete", *at, "alice", token=admin, code=3)
        log = (data.parent / f"{data.name}.log").read_text()
        assert made["token"] not in log
        assert "correct horse" not in log
    muster("storage", "reset-security", "--data", str(data), "--yes")
    again = muster("storage", "bootstrap-user", "--data", str(data), "--token", "admin").strip()
    with running_node(data, SETTINGS) as node:
        at = ("--bootstrap", node.address)
        muster("tokens", "list", *at, token=admin, code=1)
        assert [row["name"] for row in json.loads(muster("tokens", "list", *at, "-o", "json", token=again))] == [
            "admin"
        ]
