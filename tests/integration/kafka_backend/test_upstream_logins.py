"""The upstream client as a real broker asks it who it is."""

import asyncio

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from muster.coordinator.config import parse_address
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamCredentials, UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.integration.kafka_backend.conftest import PASSWORD, RealKafka

ITERATIONS = 4096
BY_NAME = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_knows_the_password_is_let_in(real_kafka: RealKafka, mechanism: str) -> None:
    if mechanism in BY_NAME:
        credential = ScramCredentialInfo(BY_NAME[mechanism], ITERATIONS)
        admin = AdminClient({"bootstrap.servers": real_kafka.address})
        wanted = UserScramCredentialUpsertion("muster", credential, PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([wanted]).values():
            done.result(30)

    async def tried(password: str) -> str:
        login = UpstreamCredentials(mechanism, "muster", password)
        upstream = Upstream(UpstreamAddress((parse_address(real_kafka.asking),), login, connect_s=10, answer_s=10))
        try:
            view = await upstream.refresh([])
            return f"{len(view.brokers)} broker"
        except UpstreamError as error:
            return str(error)
        finally:
            upstream.close()

    assert asyncio.run(tried(PASSWORD)) == "1 broker"
    told = asyncio.run(tried("wrong"))
    assert f"refuses the login by {mechanism}: SASL_AUTHENTICATION_FAILED (58)" in told
    assert "wrong" not in told
