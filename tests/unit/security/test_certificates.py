"""Certificates at work: what is read, what is refused and with which sentence, whose name a certificate is."""

import asyncio
import os
import ssl
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from muster.cli.security import certificate_authority
from muster.coordinator.config import load_settings
from muster.coordinator.config.tls import BadCertificate, CertificateSettings
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.security.distinguished_names import MalformedName, format_rfc2253
from muster.coordinator.server.security.listener_certificates import (
    TLS13,
    CertificatePrincipals,
    NodeCertificates,
    UnmappedCertificate,
    load_material,
    make_listener_context,
    openssl_suites,
    subject_of,
)
from tests.support.certificates import authority, client, secure, server, write


def given(**settings: str) -> CertificateSettings:
    return CertificateSettings.model_validate({key.replace("_", "."): value for key, value in settings.items()})


def refusal(settings: CertificateSettings, now_s: float | None = None) -> str:
    with pytest.raises(BadCertificate) as caught:
        make_listener_context(load_material(settings, time.time() if now_s is None else now_s), settings)
    return str(caught.value)


# -- what is read -------------------------------------------------------------------------------------------------


def test_a_file_has_the_chain_and_the_key_in_any_order(tmp_path: Path) -> None:
    node = server()
    for data in (node.pem(), node.key_pem() + node.certificate_pem + authority().certificate_pem):
        material = load_material(given(ssl_keystore_location=write(tmp_path, "a.pem", data)), time.time())
        assert material.chain.startswith(node.certificate_pem)
        assert material.key == node.key_pem()
        assert material.trusted == b""
    assert material.chain == node.certificate_pem + authority().certificate_pem


def test_a_chain_ends_with_the_first_of_its_certificates(tmp_path: Path) -> None:
    node = server(days=5)
    data = node.pem() + server(days=2).certificate_pem
    material = load_material(given(ssl_keystore_location=write(tmp_path, "a.pem", data)), time.time())
    assert material.expires_s == pytest.approx(time.time() + 2 * 86_400, abs=60)


def test_certificate_and_key_may_stand_in_one_line_of_a_file() -> None:
    node = server()
    for blank in (" ", "\\n", "\n"):
        settings = given(
            ssl_keystore_certificate_chain=node.certificate_pem.decode().strip().replace("\n", blank),
            ssl_keystore_key=node.key_pem().decode().strip().replace("\n", blank),
            ssl_truststore_certificates=authority().certificate_pem.decode().replace("\n", blank),
            ssl_client_auth="required",
        )
        material = load_material(settings, time.time())
        assert make_listener_context(material, settings).verify_mode is ssl.CERT_REQUIRED
        assert material.trusted == authority().certificate_pem


def test_a_key_may_be_encrypted_and_no_trace_of_it_is_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "a.pem", server().pem("hunter2"))
    settings = given(ssl_keystore_location=path, ssl_key_password="hunter2")
    material = load_material(settings, time.time())
    make_listener_context(material, settings)
    assert "PRIVATE" not in repr(material)
    assert "hunter2" not in repr(settings)


# -- what is refused ----------------------------------------------------------------------------------------------


def test_what_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    node, other = server(), server()

    def file(data: bytes) -> CertificateSettings:
        return given(ssl_keystore_location=write(tmp_path, "a.pem", data))

    assert "a.pem: the private key is not that of the first certificate, CN=localhost" in refusal(
        file(node.certificate_pem + other.key_pem())
    )
    assert "a.pem: there are 0 private keys; expected one in PKCS #8" in refusal(file(node.certificate_pem))
    assert "there are 2 private keys" in refusal(file(node.pem() + other.key_pem()))
    assert "a.pem: there is no certificate; expected PEM" in refusal(file(node.key_pem()))
    assert "the private key is encrypted; set ssl.key.password" in refusal(file(node.pem("hunter2")))
    assert "certificate 1 is damaged" in refusal(file(node.pem().replace(b"MII", b"MIJ", 1)))
    assert "there is no certificate" in refusal(file(b"\xff\xfe not PEM"))
    wrong = given(ssl_keystore_location=write(tmp_path, "a.pem", node.pem("hunter2")), ssl_key_password="hunter3")
    told = refusal(wrong)
    assert "cannot be decrypted; is ssl.key.password the right one?" in told
    assert "hunter" not in told
    absent = given(ssl_keystore_location=str(tmp_path / "absent"))
    assert "absent, which cannot be read: No such file or directory; expected a PEM file" in refusal(absent)
    assert "which cannot be read: Is a directory" in refusal(given(ssl_keystore_location=str(tmp_path)))
    huge = given(ssl_keystore_location=write(tmp_path, "huge", bytes(5 << 20)))
    assert "huge, which is larger than 4194304 bytes" in refusal(huge)
    good = write(tmp_path, "good.pem", node.pem())
    trusts = given(ssl_keystore_location=good, ssl_truststore_location=good + "x", ssl_client_auth="required")
    assert refusal(trusts).startswith("ssl.truststore.location is ")


def test_a_certificate_counts_only_in_its_time(tmp_path: Path) -> None:
    settings = given(ssl_keystore_location=write(tmp_path, "a.pem", server(days=1).pem()))
    load_material(settings, time.time())
    assert "the certificate of CN=localhost ended " in refusal(settings, time.time() + 86_401)
    assert "begins " in refusal(settings, time.time() - 3_600)


def test_suites_have_kafkas_names_or_openssls() -> None:
    both = ["TLSv1.2", "TLSv1.3"]
    assert openssl_suites([], both) is None
    assert openssl_suites(["ECDHE-RSA-AES128-GCM-SHA256", *TLS13], both) == ["ECDHE-RSA-AES128-GCM-SHA256"]
    assert openssl_suites(sorted(TLS13), both) == []
    for names, versions, why in (
        (["TLS_AES_256_GCM_SHA384"], both, "which always offers TLS_AES_128_GCM_SHA256"),
        (["TLS_AES_256_GCM_SHA384"], ["TLSv1.2"], "none of which TLSv1.2 knows"),
        (["ALL"], ["TLSv1.2"], "'ALL' is not a suite that is known here"),
        (["TLS_RSA_WITH_NULL_SHA"], ["TLSv1.2"], "is not a suite that is known here"),
    ):
        with pytest.raises(BadCertificate, match=why):
            openssl_suites(names, versions)


def test_a_context_speaks_the_versions_and_suites_that_are_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "a.pem", server().pem())
    older = given(
        ssl_keystore_location=path,
        ssl_enabled_protocols="TLSv1.2",
        ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    )
    context = make_listener_context(load_material(older, time.time()), older)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"] == [
        "ECDHE-ECDSA-AES256-GCM-SHA384"
    ]
    newer = given(ssl_keystore_location=path, ssl_cipher_suites=",".join(TLS13))
    assert make_listener_context(load_material(newer, time.time()), newer).minimum_version is ssl.TLSVersion.TLSv1_3
    plain = given(ssl_keystore_location=path)
    context = make_listener_context(load_material(plain, time.time()), plain)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


# -- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("der", "text"),
    [  # the right column is what Java 17's X500Principal.getName() says of the left one
        ("3000", ""),
        ("301d310b3009060355040613024445310e300c06035504030c05612c622b63", "CN=a\\,b\\+c,C=DE"),
        ("301531133011060355040 30c0a2063c3a92322005c3c20".replace(" ", ""), 'CN=\\ cé\\#\\"\\00\\\\\\<\\ '),
        ("3016311430120609 2a864886f70d01090116056140622e63".replace(" ", ""), "1.2.840.113549.1.9.1=#16056140622e63"),
        ("300d310b300906035504071302203d", "L=\\ \\="),
        ("300d310b300906035504070202 3132".replace(" ", ""), "L=#02023132"),
        ("3019311730080603550403 0c0161300b060355040b0c046233c3a9".replace(" ", ""), "CN=a+OU=b3é"),
    ],
)
def test_a_subject_is_written_as_java_writes_it(der: str, text: str) -> None:
    assert format_rfc2253(bytes.fromhex(der)) == text


@pytest.mark.parametrize("der", ["", "30", "3005", "310030", "30800000", "3003310130", "3008310630040603550403"])
def test_bytes_that_are_no_name_are_refused(der: str) -> None:
    with pytest.raises(MalformedName):
        format_rfc2253(bytes.fromhex(der))


def test_a_certificate_names_its_user_by_the_rules_and_is_read_once() -> None:
    settings = given(ssl_principal_mapping_rules="RULE:^CN=(al.*)$/$1@example/U,RULE:^CN=(b.*)$/$1/")
    names = CertificatePrincipals(settings.ssl_principal_mapping_rules, settings.mapping_rules)
    alice = client("alice")
    pem, der = alice.certificate_pem, alice.certificate.public_bytes(Encoding.DER)
    assert subject_of(pem) == subject_of(der) == "CN=alice"
    assert str(names.principal_of(der)) == "User:ALICE@EXAMPLE"
    assert names.principal_of(der) is names.principal_of(der)
    assert str(names.identity_of(pem, "10.0.0.1").principal) == "User:ALICE@EXAMPLE"
    with pytest.raises(
        UnmappedCertificate, match=r"no rule of ssl\.principal\.mapping\.rules, RULE:.*, matches the subject 'CN=carol'"
    ):
        names.principal_of(client("carol").certificate_pem)
    with pytest.raises(UnmappedCertificate, match="cannot be read"):
        names.principal_of(b"\x30\x00")


def test_a_name_that_would_spoil_a_line_is_nobodys() -> None:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a\nUser:admin")])
    evil = certificate_authority.issue_client_certificate(authority(), subject, 1)
    with pytest.raises(UnmappedCertificate, match="expected printable text"):
        CertificatePrincipals("DEFAULT", given().mapping_rules).principal_of(evil.certificate_pem)
    long = x509.Name([x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "x" * 60)] * 20)
    endless = certificate_authority.issue_client_certificate(authority(), long, 1).certificate_pem
    with pytest.raises(UnmappedCertificate, match="at most 1024 characters") as caught:
        CertificatePrincipals("DEFAULT", given().mapping_rules).principal_of(endless)
    assert len(str(caught.value)) < 400


# -- files that change --------------------------------------------------------------------------------------------


class Wall:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s or time.time()


def node(tmp_path: Path, wall: Wall, **more: str) -> NodeCertificates:
    settings = load_settings(None, secure(tmp_path, listeners="SSL://127.0.0.1:0", **more))
    return NodeCertificates(settings, wall_s=wall)


async def looked(certificates: NodeCertificates, conditions: Conditions) -> dict[str, str]:
    await certificates.renew_certificates(conditions)
    return {each.name: each.sentence for each in conditions.current()}


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(steps)


def test_a_file_that_changes_is_read_and_a_broken_one_keeps_the_old(tmp_path: Path) -> None:
    async def steps() -> None:
        certificates, conditions = node(tmp_path, Wall()), Conditions(lambda: 0)
        own = certificates.of("grpc")
        assert own is not None
        first, path = own.material, tmp_path / "server.pem"
        assert await looked(certificates, conditions) == {}
        assert own.material is first
        path.write_bytes(b"half a certifica")
        [(name, sentence)] = (await looked(certificates, conditions)).items()
        assert name == "certificate-not-read:grpc"
        assert "there is no certificate" in sentence
        assert "the certificate of before (CN=localhost) is shown until the file is mended" in sentence
        assert own.material is first
        assert "certificate-not-read:grpc" in await looked(certificates, conditions), "until it is mended"
        path.write_bytes(server().pem())
        assert await looked(certificates, conditions) == {}
        assert own.material is not first

    run(steps())


def test_a_link_that_is_swapped_is_followed(tmp_path: Path) -> None:
    """As Kubernetes does it: FILE -> ..data/FILE, ..data -> a directory, and a new link is renamed over the old one."""

    async def steps() -> None:
        for version in ("v1", "v2"):
            write(tmp_path / version, "server.pem", server().pem())
        (tmp_path / "..data").symlink_to("v1")
        (tmp_path / "mounted.pem").symlink_to("..data/server.pem")
        wall = Wall()
        certificates = node(tmp_path, wall, ssl_keystore_location=str(tmp_path / "mounted.pem"))
        own, conditions = certificates.of("grpc"), Conditions(lambda: 0)
        assert own is not None
        first = own.material
        await certificates.renew_certificates(conditions)
        assert own.material is first
        (tmp_path / "..new").symlink_to("v2")
        os.replace(tmp_path / "..new", tmp_path / "..data")
        await certificates.renew_certificates(conditions)
        assert own.material.chain != first.chain

    run(steps())


def test_the_end_of_a_certificate_is_told_before_it_comes(tmp_path: Path) -> None:
    async def steps() -> None:
        wall, conditions = Wall(), Conditions(lambda: 0)
        certificates = node(tmp_path, wall)
        ends_s = certificates.expiries()["listeners"]
        assert ends_s == pytest.approx(time.time() + 30 * 86_400, abs=60)
        assert await looked(certificates, conditions) == {}
        wall.now_s = ends_s - 13 * 86_400
        told = await looked(certificates, conditions)
        assert "the certificate that listeners shows (CN=localhost) ends " in told["certificate-ends:grpc"]
        wall.now_s = ends_s + 1
        told = await looked(certificates, conditions)
        assert list(told) == ["certificate-ended:grpc"]
        assert " ended " in told["certificate-ended:grpc"]
        assert "clients refuse to connect" in told["certificate-ended:grpc"]
        (tmp_path / "server.pem").write_bytes(server(days=60).pem())
        assert await looked(certificates, conditions) == {}

    run(steps())


def test_each_listener_may_have_a_certificate_of_its_own(tmp_path: Path) -> None:
    own = write(
        tmp_path,
        "kafka.pem",
        certificate_authority.issue_server_certificate(authority(), ["kafka.example"], 5).pem("hunter2"),
    )
    more = {"listener.name.kafka.ssl.keystore.location": own, "listener.name.kafka.ssl.key.password": "hunter2"}
    settings = load_settings(
        None,
        secure(tmp_path, listeners="SSL://127.0.0.1:0", kafka_listeners="SSL://127.0.0.1:0")
        | more
        | {"listener.name.kafka.ssl.client.auth": "required", "authorizer": "acl"},
    )
    certificates = NodeCertificates(settings)
    kafka, grpc = certificates.of("kafka"), certificates.of("grpc")
    assert kafka is not None
    assert grpc is not None
    assert (kafka.material.subject, grpc.material.subject) == ("CN=kafka.example", "CN=localhost")
    assert (kafka.given.ssl_client_auth, grpc.given.ssl_client_auth) == ("required", "none")
    assert certificates.of("http") is None
