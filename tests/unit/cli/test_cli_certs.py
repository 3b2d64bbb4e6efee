"""`muster certs`: an authority and what it signs; nothing written over, keys for their owner's eyes only."""

import json
import os
import ssl
from pathlib import Path

import pytest

from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.coordinator.config import load_settings


def test_what_is_made_serves_a_node_and_a_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    assert main(["certs", "init", str(made), "--hosts", "muster.example,::1", "--clients", "admin,worker 1"]) == Exit.OK
    modes = {path.name: path.stat().st_mode & 0o777 for path in made.iterdir()}
    keys = ("ca.key", "server.pem", "admin.pem", "worker 1.pem")
    assert modes == {"ca.pem": 0o644} | dict.fromkeys(keys, 0o600)
    told = capsys.readouterr().out
    node = [line for line in told.partition("\n\n")[0].splitlines() if not line.startswith("#")]
    settings = load_settings(None, dict(line.split("=", 1) for line in node))
    assert settings.grpc_listener.protocol == "SSL"
    assert settings.super_users == "User:CN=admin"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(settings.ssl_keystore_location)
    server.load_verify_locations(settings.ssl_truststore_location)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=made / "ca.pem")
    client.load_cert_chain(made / "worker 1.pem")
    shake_hands(server, client, "muster.example")
    shake_hands(server, client, "::1")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client, "localhost")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(back, there, server_hostname=host)
    answers = server.wrap_bio(there, back, server_side=True)
    for side in (asks, answers, asks, answers):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert answers.getpeercert() is not None


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server.pem").write_text("mine")
    assert main(["certs", "init", str(tmp_path)]) == Exit.CONFLICT
    assert f"{tmp_path / 'server.pem'} is there already; name another directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["server.pem"]
    assert (tmp_path / "server.pem").read_text() == "mine"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--hosts", ""], "--hosts is ''; expected one name or more"),
        (["--hosts", "a,a"], "by commas, each once"),
        (["--clients", "server"], "cannot be the name of a client's file"),
        (["--clients", "../x"], "cannot be the name of a client's file"),
        (["--clients", "x" * 65], "no certificate can be made: "),
        (["--hosts", "bücher.example"], "no certificate can be made: "),
    ],
)
def test_a_name_that_cannot_be_is_refused(
    given: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", "init", str(tmp_path / "made"), *given]) == Exit.USAGE
    assert why in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_the_key_of_the_authority_may_be_kept_elsewhere_and_signs_again(tmp_path: Path) -> None:
    home, tls, more = tmp_path / "authority", tmp_path / "tls", tmp_path / "more"
    once = ["certs", "init", str(tls), "--authority", str(home), "--if-missing"]
    assert main(once) == Exit.OK
    assert sorted(path.name for path in tls.iterdir()) == ["admin.pem", "ca.pem", "server.pem"]
    assert sorted(path.name for path in home.iterdir()) == ["ca.key", "ca.pem"]
    before = {path: path.read_bytes() for path in tls.iterdir()}
    assert main(once) == Exit.OK
    assert {path: path.read_bytes() for path in tls.iterdir()} == before
    (tls / "admin.pem").unlink()
    assert main(once) == Exit.CONFLICT, "half of it is no whole"
    assert main(["certs", "init", str(more), "--authority", str(home), "--clients", "bob"]) == Exit.OK
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tls / "server.pem")
    server.load_verify_locations(tls / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=more / "ca.pem")
    client.load_cert_chain(more / "bob.pem")
    shake_hands(server, client, "localhost")
    (home / "ca.key").write_bytes((more / "bob.pem").read_bytes())
    assert main(["certs", "init", str(tmp_path / "x"), "--authority", str(home)]) == Exit.USAGE


def test_a_file_is_shown_without_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    main(["certs", "init", str(made), "--hosts", "muster.example,10.0.0.1", "--days", "2"])
    capsys.readouterr()
    assert main(["certs", "show", str(made / "server.pem"), "-o", "json"]) == Exit.OK
    [row] = json.loads(capsys.readouterr().out)
    assert (row["subject"], row["issuer"]) == ("CN=muster.example", "CN=Muster development CA")
    assert (row["hosts"], row["authority"]) == ("muster.example, 10.0.0.1", False)
    assert main(["certs", "show", str(made / "ca.pem"), "-o", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)[0]["authority"] is True
    assert main(["certs", "show", str(made / "ca.key")]) == Exit.FAILURE
    assert "holds no certificate; expected PEM" in capsys.readouterr().err


def test_a_mask_that_hides_less_opens_no_key(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert main(["certs", "init", str(tmp_path / "made")]) == Exit.OK
    finally:
        os.umask(before)
    assert (tmp_path / "made" / "ca.key").stat().st_mode & 0o777 == 0o600
