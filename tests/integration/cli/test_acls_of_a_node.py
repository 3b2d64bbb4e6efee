"""`muster acls` against a node with authorizer=acl."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from muster.cli.main import cli
from tests.integration.conftest import Run
from tests.support.grpc_node import serving
from tests.support.logins import give_token

pytestmark = pytest.mark.integration
SECURED = {"authorizer": "acl", "super_users": "User:admin"}


def test_entries_are_added_listed_checked_and_removed(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, **SECURED) as node:
            assert node._security is not None
            admin = await give_token(node._security.store, 1, "User:admin")
            bob = await give_token(node._security.store, 2, "User:bob")

            async def acls(*words: str, token: str = admin) -> Result:
                given = ["--bootstrap", f"127.0.0.1:{node.bound.port}", "--set", f"token={token}", "-o", "json"]
                command = ["acls", words[0], *given, *words[1:]]
                return await asyncio.to_thread(CliRunner().invoke, cli, command, standalone_mode=False)

            who = ("--allow-principal", "User:bob")
            added = await acls("add", *who, "--consumer", "--topic", "orders", "--group", "billing")
            assert len(json.loads(added.stdout)) == 3, added.output
            denied = ("--deny-principal", "User:bob", "--operation", "read", "--topic", "ord")
            await acls("add", *denied, "--resource-pattern-type", "prefixed")

            listed = await acls("list", "--topic", "orders", "--resource-pattern-type", "match")
            assert {(row["operation"], row["permission"]) for row in json.loads(listed.stdout)} == {
                ("READ", "ALLOW"),
                ("DESCRIBE", "ALLOW"),
                ("READ", "DENY"),
            }
            asked = ("--principal", "User:bob", "--operation", "READ", "--topic", "orders")
            no = await acls("check", *asked)
            assert no.return_value == 1
            reason = json.loads(no.stdout)[0]["reason"]
            assert reason == "no: User:bob is denied READ on TOPIC 'ord...' from anywhere, and what is denied is denied"

            gone = await acls("remove", *denied, "--resource-pattern-type", "prefixed", "--force")
            assert [row["permission"] for row in json.loads(gone.stdout)] == ["DENY"]
            yes = await acls("check", *asked)
            assert yes.return_value == 0
            assert json.loads(yes.stdout)[0]["reason"].startswith("yes: User:bob is allowed READ on TOPIC 'orders'")

            # All about the resource; and only told, not done.
            await acls("remove", "--topic", "orders", "--dry-run")
            assert len(json.loads((await acls("list")).stdout)) == 3
            await acls("remove", "--topic", "orders", "--force")
            assert [row["resource_type"] for row in json.loads((await acls("list")).stdout)] == ["GROUP"]

            for words in (("list",), ("add", *who, "--cluster"), ("check", *asked)):
                refused = await acls(*words, token=bob)
                assert "CLUSTER_AUTHORIZATION_FAILED" in str(refused.exception), refused.output
            wrong = await acls("add", "--allow-principal", "bob", "--topic", "t")
            assert "'bob' is not a principal" in str(wrong.exception)

    with capture_logs():  # the node's lines would stand among the command's
        run(story)


def test_a_node_without_lists_says_so(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as node:
            command = ["acls", "list", "--bootstrap", f"127.0.0.1:{node.bound.port}"]
            refused = await asyncio.to_thread(CliRunner().invoke, cli, command, standalone_mode=False)
            assert "it keeps no access control lists; set authorizer=acl there" in str(refused.exception)

    with capture_logs():
        run(story)
