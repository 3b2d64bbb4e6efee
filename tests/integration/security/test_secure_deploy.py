"""The files of deploy/ as a container has them, run: certificates, a node, its first user, and nobody else."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from ssl import create_default_context

import pytest

from tests.support.node import MUSTER, running_node

pytestmark = pytest.mark.integration

DEPLOY = Path(__file__).parents[3] / "deploy"


def here(name: str, tmp_path: Path) -> str:
    """A file of deploy/ with its paths below a directory."""
    return (DEPLOY / name).read_text().replace("/etc/muster", str(tmp_path))


def muster(tmp_path: Path, *arguments: str, config: str = "client.properties") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"MUSTER_CONFIG": str(tmp_path / config) if config else ""}
    return subprocess.run([MUSTER, *arguments], env=environment, capture_output=True, text=True, timeout=60)


def test_the_first_user_gets_in_and_nobody_else(tmp_path: Path) -> None:
    made = muster(tmp_path, "certs", "init", str(tmp_path / "tls"), "--clients", "admin,worker", config="")
    assert made.returncode == 0, made.stderr
    lines = here("secure.properties", tmp_path).splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    del settings["log.dirs"]
    (tmp_path / "client.properties").write_text(text := here("client.properties", tmp_path))
    (tmp_path / "worker.properties").write_text(text.replace("admin.pem", "worker.pem"))
    (tmp_path / "plain.properties").write_text("")
    here_only = {"listeners": "SSL://127.0.0.1:0", "http.listeners": "SSL://127.0.0.1:0"}
    with running_node(tmp_path / "data", settings | here_only | {"advertised.listeners": "localhost:0"}) as node:
        at = ["--bootstrap", node.address]
        assert muster(tmp_path, "health", *at).stdout.startswith("SERVING")
        assert muster(tmp_path, "topics", "create", "orders", *at).returncode == 0
        rows = json.loads(muster(tmp_path, "topics", "list", *at, "-o", "json").stdout)
        assert [row["topic"] for row in rows] == ["orders"]
        seen = muster(tmp_path, "topics", "list", *at, "-o", "json", config="worker.properties")
        assert (seen.returncode, json.loads(seen.stdout)) == (0, []), "known, and without rights"
        refused = muster(tmp_path, "topics", "create", "mine", *at, config="worker.properties")
        assert refused.returncode != 0
        stranger = muster(
            tmp_path, "topics", "list", *at, "--set", "default.api.timeout.ms=2000", config="plain.properties"
        )
        assert stranger.returncode != 0
        trusting = create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))
        for path in ("/startupz", "/readyz", "/healthz"):
            with urllib.request.urlopen(f"https://{node.http}{path}", context=trusting, timeout=30) as answer:
                assert answer.status == 200, path
        with pytest.raises(urllib.error.HTTPError) as asked:
            urllib.request.urlopen(f"https://{node.http}/api/v1/groups", context=trusting, timeout=30)
        assert asked.value.code == 401
    assert "open to others" not in (tmp_path / "data.log").read_text()
