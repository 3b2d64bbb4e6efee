"""What lies in deploy/ agrees with the code: settings, ports, commands, and how long a drain may take."""

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from muster.cli.main import cli, main
from muster.coordinator.config import Settings, load_settings, parse_address, render_properties
from muster.coordinator.config.listener_security import find_open_listeners
from muster.coordinator.observability.scaler.trigger_metadata import parse_metadata as read_trigger
from muster.coordinator.web.http import monitoring
from tests.fakes.asked_node import AskedNode

DEPLOY = Path(__file__).parents[2] / "deploy"
PROPERTIES = DEPLOY / "coordinator.properties"
SECURE = DEPLOY / "secure.properties"
TLS = "/etc/muster/tls"
PORT, HTTP_PORT = Settings().listen_port, 9291
DRAIN_S = Settings().shutdown_timeout_ms / 1000
USER = 10001


def dockerfile() -> list[tuple[str, str]]:
    """(INSTRUCTION, rest) pairs, with continued lines joined and comments left out."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def instruction(name: str) -> str:
    return [rest for instruction, rest in dockerfile() if instruction == name][-1]


def manifests() -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes/muster.yaml").read_text())
    return {document["kind"]: document for document in documents}


def container() -> dict[str, Any]:
    pod = manifests()["StatefulSet"]["spec"]["template"]["spec"]
    assert len(pod["containers"]) == 1
    found: dict[str, Any] = pod["containers"][0]
    return found


def node_of_compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["node"]
    return found


def certificates_of_compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["certificates"]
    return found


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "muster.service").read_text())
    return parser


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every `muster` command line that these files run, without the word itself."""
    assert json.loads(instruction("ENTRYPOINT")) == ["muster"]
    yield "Dockerfile CMD", json.loads(instruction("CMD"))
    yield "Dockerfile HEALTHCHECK", json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])[1:]
    yield "compose command", node_of_compose()["command"]
    yield "compose certificates", certificates_of_compose()["command"]
    yield "compose healthcheck", node_of_compose()["healthcheck"]["test"][2:]
    yield "kubernetes args", container()["args"]
    yield "systemd ExecStart", shlex.split(unit()["Service"]["ExecStart"])[1:]


def parsed(arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """The sub-command and its parameters, as click reads them; unknown ones raise."""
    context = click.Context(cli)
    name, command, rest = cli.resolve_command(context, list(arguments))
    assert name is not None
    assert command is not None
    return name, command.make_context(name, rest, parent=context).params


def settings_of(arguments: list[str], file: Path) -> Settings:
    name, params = parsed([argument.replace("$(POD_NAME)", "muster-0") for argument in arguments])
    assert name == "serve"
    given = dict(params["overrides"])
    given |= {"log.dirs": params["data"]} if params["data"] else {}
    given |= {"listeners": params["listen"]} if params["listen"] else {}
    return load_settings(file, given)


@pytest.mark.parametrize(("where", "arguments"), list(command_lines()), ids=lambda value: str(value)[:30])
def test_every_command_line_is_one_that_muster_understands(where: str, arguments: list[str]) -> None:
    name, _ = parsed(arguments)
    assert name in ("serve", "health", "certs"), where


def test_the_properties_file_is_current() -> None:
    assert PROPERTIES.read_text() == render_properties(), "run: make properties"


def test_the_properties_file_sets_every_setting_to_its_default() -> None:
    assert load_settings(PROPERTIES, {}) == Settings()


@pytest.mark.parametrize("arguments", [json.loads(instruction("CMD")), node_of_compose()["command"]])
def test_a_container_listens_everywhere_on_the_default_port_and_keeps_data_in_its_volume(arguments: list[str]) -> None:
    assert parsed(arguments)[1]["file"] == Path("/etc/muster") / SECURE.name
    settings = settings_of(arguments, SECURE)
    assert (settings.listen_host, settings.listen_port) == ("0.0.0.0", PORT)
    assert settings.advertised_address(0).port == PORT
    assert settings.data_dir == Path(instruction("VOLUME"))


def test_the_image_exposes_the_port_and_drains_on_sigterm_as_an_ordinary_user() -> None:
    assert instruction("EXPOSE") == f"{PORT} {HTTP_PORT}"
    assert instruction("STOPSIGNAL") == "SIGTERM"
    assert instruction("USER") == f"{USER}:{USER}"
    assert f"--uid {USER}" in " ".join(rest for name, rest in dockerfile() if name == "RUN")
    assert instruction("ENTRYPOINT").startswith("["), "a shell in between would keep SIGTERM from the node"


def test_the_image_builds_from_files_that_exist_and_the_build_context_lets_through() -> None:
    allowed = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    sources = {
        source
        for name, rest in dockerfile()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    setuptools = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {name.rstrip("*") for name in setuptools["packages"]["find"]["include"]} <= sources
    shared = {Path(name).parts[0] for names in setuptools["data-files"].values() for name in names}
    assert shared <= sources
    assert sources <= allowed
    assert [source for source in sources if not (DEPLOY.parent / source).exists()] == []


def test_compose_publishes_the_port_and_waits_for_the_drain() -> None:
    node = node_of_compose()
    assert node["ports"] == [f"127.0.0.1:{port}:{port}" for port in (PORT, HTTP_PORT)]
    assert int(node["stop_grace_period"].rstrip("s")) > DRAIN_S
    assert (DEPLOY / node["build"]["context"] / node["build"]["dockerfile"]).is_file()


def test_the_unit_keeps_its_data_where_the_command_says_and_waits_for_the_drain() -> None:
    service = unit()["Service"]
    _, params = parsed(shlex.split(service["ExecStart"])[1:])
    assert params["data"] == f"/var/lib/{service['StateDirectory']}"
    assert int(service["TimeoutStopSec"]) > DRAIN_S
    assert service["KillSignal"] == "SIGTERM"
    assert service["RestartPreventExitStatus"].split() == ["2", "5"]


def test_kubernetes_settings_ports_and_probes_agree_with_the_node(tmp_path: Path) -> None:
    node, service = container(), manifests()["Service"]["spec"]
    file = tmp_path / "coordinator.properties"
    file.write_text(manifests()["ConfigMap"]["data"]["coordinator.properties"])
    settings = settings_of(node["args"], file)
    assert settings.listen_port == PORT
    assert settings.http_address == ("0.0.0.0", HTTP_PORT)
    named = {port["name"]: port["containerPort"] for port in node["ports"]}
    assert sorted(named.values()) == [PORT, HTTP_PORT]
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == named
    asked = {route.path for route in monitoring.probe_routes(AskedNode())}
    assert settings.http_probes_anonymous, "the kubelet shows no certificate"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = node[probe]["httpGet"]
        assert (named[get["port"]], get["scheme"]) == (HTTP_PORT, "HTTPS")
        assert get["path"] in asked
    assert {"name": "data", "mountPath": str(settings.data_dir)} in node["volumeMounts"]


def secured() -> Iterator[Settings]:
    """What each of the files for machines that others reach serves."""
    yield load_settings(SECURE, {})
    text = manifests()["ConfigMap"]["data"]["coordinator.properties"]
    given = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    yield load_settings(None, given | {"advertised.listeners": "muster-0.muster.default.svc:9290"})


@pytest.mark.parametrize("settings", list(secured()), ids=["container", "kubernetes"])
def test_what_others_reach_is_secure_as_it_comes(settings: Settings) -> None:
    assert not settings.allow_insecure_listeners
    assert not settings.http_insecure
    assert {name for name, door in settings.listener_addresses.items() if door.encrypted} == {"grpc", "http"}
    assert settings.certificates_of("grpc").ssl_client_auth == "required"
    assert (settings.authorizer, settings.super_users) == ("acl", "User:CN=admin")
    assert not settings.allow_everyone_if_no_acl_found
    assert list(find_open_listeners(settings.listener_addresses, settings.authorizer)) == []
    files = {settings.ssl_keystore_location, settings.ssl_truststore_location}
    assert files == {f"{TLS}/server.pem", f"{TLS}/ca.pem"}


def test_the_certificates_that_compose_makes_are_those_that_node_and_commands_read(tmp_path: Path) -> None:
    service, node = certificates_of_compose(), node_of_compose()
    made, home = tmp_path / "tls", tmp_path / "authority"
    given = [{TLS: str(made), "/etc/muster/authority": str(home)}.get(word, word) for word in service["command"]]
    for _ in range(2):
        assert main(given) == 0, "at each start"
    commands = dict(
        line.split("=", 1) for line in (DEPLOY / "client.properties").read_text().splitlines() if "#" not in line
    )
    read = {commands["ssl.truststore.location"], commands["ssl.keystore.location"], f"{TLS}/server.pem"}
    assert {Path(path).name for path in read} == {path.name for path in made.iterdir()}
    assert "/etc/muster/" + (DEPLOY / "client.properties").name == instruction("ENV").partition("=")[2]
    assert f"tls:{TLS}:ro" in node["volumes"]
    assert not any("authority" in volume for volume in node["volumes"]), "its key is not the node's to see"
    assert set(service["volumes"]) == {f"tls:{TLS}", "authority:/etc/muster/authority"}
    for path in (TLS, "/etc/muster/authority"):
        assert path in " ".join(rest for name, rest in dockerfile() if name == "RUN"), (
            "a volume has its owner from here"
        )
    assert node["depends_on"]["certificates"]["condition"] == "service_completed_successfully"


def test_kubernetes_mounts_the_secret_as_a_whole_where_the_settings_look() -> None:
    pod = manifests()["StatefulSet"]["spec"]["template"]["spec"]
    [secret] = [volume for volume in pod["volumes"] if "secret" in volume]
    [mount] = [mount for mount in container()["volumeMounts"] if mount["name"] == secret["name"]]
    assert (mount["mountPath"], mount["readOnly"], "subPath" in mount) == (TLS, True, False)
    assert secret["secret"]["defaultMode"] == 0o440
    assert "fsGroup" in pod["securityContext"], "the group may read it"


def test_kubernetes_tells_clients_the_pods_own_name(tmp_path: Path) -> None:
    stateful = manifests()["StatefulSet"]
    given = parsed(container()["args"])[1]["overrides"]["advertised.listeners"]
    told = given.replace("$(POD_NAME)", "muster-0").replace("$(POD_NAMESPACE)", "default")
    assert parse_address(told) == (f"muster-0.{stateful['spec']['serviceName']}.default.svc", PORT)
    assert set(re.findall(r"\$\((\w+)\)", given)) <= {variable["name"] for variable in container()["env"]}


COMMENTED = [
    line.lstrip("# ").removeprefix("muster ")
    for name in ("kubernetes/muster.yaml", "kubernetes/keda.yaml", "cluster/kubernetes.yaml")
    for line in (DEPLOY / name).read_text().splitlines()
    if line.startswith("#   muster ")
]


@pytest.mark.parametrize("line", COMMENTED)
def test_commands_in_comments_are_understood(line: str) -> None:
    words, command, context = shlex.split(line), cli, click.Context(cli)
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.make_context(str(context.info_name), words, parent=context.parent)


def test_the_pod_is_one_ordinary_user_that_may_drain_before_it_is_killed() -> None:
    spec = manifests()["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["terminationGracePeriodSeconds"] > DRAIN_S
    assert spec["serviceName"] == manifests()["Service"]["metadata"]["name"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert manifests()["Service"]["spec"]["selector"] == spec["template"]["metadata"]["labels"]
    claimed = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    provided = claimed | {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} <= provided


def test_keda_asks_the_service_of_the_manifests_for_what_the_scaler_takes() -> None:
    login, scaled = yaml.safe_load_all((DEPLOY / "kubernetes/keda.yaml").read_text())
    told = {each["parameter"] for each in login["spec"]["secretTargetRef"]}
    assert told == {"caCert", "tlsClientCert", "tlsClientKey"}
    assert (scaled["apiVersion"], scaled["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    # Figures are totals, of which each replica has its share: any other metricType would not divide them.
    assert (trigger["type"], trigger["metricType"]) == ("external-push", "AverageValue")
    metadata = trigger["metadata"]
    assert all(isinstance(value, str) for value in metadata.values()), "Kubernetes takes texts only"
    assert trigger["authenticationRef"]["name"] == login["metadata"]["name"]
    service, _, port = metadata["scalerAddress"].partition(":")
    assert service.split(".")[1] == manifests()["Service"]["metadata"]["name"]
    assert f"--hosts {service}" in (DEPLOY / "kubernetes/muster.yaml").read_text(), "it stands in the certificate"
    assert port == str(PORT)
    wanted = read_trigger(metadata)
    assert wanted.group == scaled["spec"]["scaleTargetRef"]["name"]
    assert wanted.drain_target_s == 120
    assert scaled["spec"]["minReplicaCount"] <= scaled["spec"]["fallback"]["replicas"]
