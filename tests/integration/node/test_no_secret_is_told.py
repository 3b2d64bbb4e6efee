"""Everything that a node says, searched for the secrets that it knows."""

from base64 import b64encode
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.node_events import log_start
from muster.coordinator.web.api.routes import ALL_READING_ENDPOINTS
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb
from tests.integration.conftest import Run
from tests.support.grpc_node import connected, serving
from tests.support.logins import bearer, give_token
from tests.support.stubs import BrokerStub, GroupCoordinatorStub

pytestmark = pytest.mark.integration
FROM_ELSEWHERE = "User:hunter2-admin"


def test_no_secret_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPER", FROM_ELSEWHERE)
    said: list[str] = []
    secrets: list[str] = [FROM_ELSEWHERE]

    async def story() -> None:
        settings = {"authorizer": "acl", "super_users": "${env:SUPER}", "http_listeners": "127.0.0.1:0"}
        async with serving(tmp_path / "data", audit_log=str(tmp_path / "audit.log"), **settings) as node:
            assert node._security is not None
            assert node.http_bound is not None
            store = node._security.store
            token, other = await give_token(store, 1, FROM_ELSEWHERE), await give_token(store, 2, "User:bob")
            for kept in store.state.tokens.values():
                secrets.extend((kept.hash.hex(), b64encode(kept.hash).decode(), repr(kept.hash)))
            secrets.extend((token, other))
            log_start(node._settings)
            host, port = node.http_bound
            async with (
                connected(node, apart=True) as channel,
                httpx.AsyncClient(base_url=f"http://{host}:{port}") as web,
            ):
                groups, broker = GroupCoordinatorStub(channel), BrokerStub(channel)
                for who in (token, other, "no-such-hunter2-token"):
                    headers = {"authorization": f"Bearer {who}"}
                    paths = ["/api/v1" + each.path.format(group="g", topic="t") for each in ALL_READING_ENDPOINTS]
                    paths += ["/", "/topics", "/nodes", "/ledger", "/metrics", "/api/v1/openapi.json"]
                    said.extend([(await web.get(path, headers=headers)).text for path in paths])
                secrets.append("hunter2-token")
                admin = bearer(token)
                configs = await broker.DescribeConfigs(log_pb.DescribeConfigsRequest(), metadata=admin)
                said.extend((str(configs), str(await groups.DescribeNode(pb.DescribeNodeRequest(), metadata=admin))))

    with capture_logs() as lines:
        run(story)
    said.append(repr([line for line in lines if line["event"] != "refused"]))
    said.append((tmp_path / "audit.log").read_text())
    assert "User:bob" in said[-1], "refusals are told"
    for secret in secrets:
        # Who acts is named in the audit, however the name came to be a super user's.
        searched = said if secret != FROM_ELSEWHERE else said[:-1]
        assert not any(secret in text for text in searched), secret
