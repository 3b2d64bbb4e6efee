"""What lies in deploy/engine agrees with the code, and with itself: nodes over somebody's Kafka."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.coordinator.config import Settings, load_settings, parse_address
from muster.coordinator.config.kafka_proxy import parse_ports
from muster.coordinator.config.listener_security import find_open_listeners
from muster.coordinator.web.http import monitoring
from tests.fakes.asked_node import AskedNode
from tests.unit.test_deploy import DRAIN_S, TLS, USER, parsed
from tests.unit.test_deploy_cluster import pairs

ENGINE = Path(__file__).parents[2] / "deploy" / "engine"
PROPERTIES = ENGINE / "engine.properties"
NUMBERS = (1, 2)
READABLE = 0o440


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ENGINE / "compose.yaml").read_text())["services"]
    return found


def manifests() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((ENGINE / "kubernetes.yaml").read_text())}


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifests()["StatefulSet"]["spec"]["template"]["spec"]
    return found


def of_compose(number: int) -> Settings:
    return load_settings(PROPERTIES, parsed(services()[f"node-{number}"]["command"])[1]["overrides"])


def of_kubernetes(number: int) -> Settings:
    [container] = pod()["containers"]
    known = {"POD_NAME": f"muster-engine-{number}", "POD_NUMBER": str(number), "POD_NAMESPACE": "default"}
    assert {each["name"] for each in container["env"]} == set(known)
    overrides = parsed(container["args"])[1]["overrides"]
    for name, value in known.items():
        overrides = {key: text.replace(f"$({name})", value) for key, text in overrides.items()}
    return load_settings(None, pairs(manifests()["Secret"]["stringData"]["engine.properties"]) | overrides)


@pytest.mark.parametrize("of", [of_compose, of_kubernetes])
def test_nodes_have_numbers_and_addresses_of_their_own_over_one_kafka(of: Any) -> None:
    nodes = [of(number) for number in NUMBERS]
    assert [node.node_id for node in nodes] == list(NUMBERS)
    assert {node.engine for node in nodes} == {"kafka://kafka:9092"}
    for of_node in ("advertised_listeners", "kafka_advertised_listeners"):
        assert len({getattr(node, of_node) for node in nodes}) == len(nodes)
    for node in nodes:
        assert {name for name, door in node.listener_addresses.items() if door.encrypted} == {"grpc", "kafka", "http"}
        assert node.broker_ports
        assert "data_dir" not in node.model_fields_set


@pytest.mark.parametrize("number", NUMBERS)
def test_each_node_of_compose_is_reached_where_it_says(number: int) -> None:
    node, settings = services()[f"node-{number}"], of_compose(number)
    kafka = settings.kafka_listener
    assert kafka is not None
    host, port = parse_address(settings.advertised_listeners)
    assert (host, port) == ("localhost", settings.listen_port)
    assert parse_address(settings.kafka_advertised_listeners) == ("localhost", kafka.address.port)
    published = dict(each.removeprefix("127.0.0.1:").split(":") for each in node["ports"])
    assert len(published) == len(node["ports"]), "on this machine only"
    for each in (port, kafka.address.port, *settings.broker_ports):
        assert published[str(each)] == str(each), "clients are led to it by the number it has inside"
    told = node.get("environment", {}).get("MUSTER_BOOTSTRAP", "localhost:9290")
    assert told == settings.advertised_listeners, "commands in the container ask their own node"
    assert int(node["stop_grace_period"].rstrip("s")) > 2 * DRAIN_S


def test_compose_s_kafka_is_the_one_that_the_nodes_look_for() -> None:
    said, settings = services()["kafka"]["environment"], of_compose(1)
    assert said["KAFKA_ADVERTISED_LISTENERS"] == settings.engine.replace("kafka://", "PLAINTEXT://")
    assert int(said["KAFKA_NODE_ID"]) == settings.engine_kafka_broker_id_first
    assert (len(settings.broker_ports), settings.engine_kafka_state_replication_factor) == (1, 1)
    assert "ports" not in services()["kafka"], "who passes the nodes by splits a group"
    command = services()["certificates"]["command"]
    assert command[command.index("--hosts") + 1].split(",")[0] == "localhost"


def test_pods_have_no_volume_and_come_and_go_one_by_one() -> None:
    found, spec = manifests(), manifests()["StatefulSet"]["spec"]
    labels = found["StatefulSet"]["metadata"]["labels"]
    assert "volumeClaimTemplates" not in spec
    assert {next(iter(set(each) - {"name"})) for each in pod()["volumes"]} == {"secret"}
    assert spec["minReadySeconds"] * 1000 >= of_kubernetes(1).engine_kafka_session_timeout_ms
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    for selector in (found["PodDisruptionBudget"]["spec"]["selector"], spec["selector"]):
        assert selector["matchLabels"] == labels == spec["template"]["metadata"]["labels"]
    assert (pod()["securityContext"]["runAsUser"], pod()["terminationGracePeriodSeconds"] > 2 * DRAIN_S) == (USER, True)


def test_ports_probes_and_names_of_the_pods_agree_with_the_node() -> None:
    found, settings = manifests(), of_kubernetes(1)
    [container] = pod()["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert settings.http_address is not None
    assert settings.kafka_listener is not None
    assert ports == {
        "grpc": settings.listen_port,
        "https": settings.http_address.port,
        "kafka": settings.kafka_listener.address.port,
    }
    assert {each["targetPort"]: each["port"] for each in found["Service"]["spec"]["ports"]} == ports
    asked = {route.path for route in monitoring.probe_routes(AskedNode())}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in asked
    service = found["StatefulSet"]["spec"]["serviceName"]
    assert found["Service"]["spec"]["clusterIP"] == "None"
    assert settings.advertised_listeners == f"muster-engine-1.{service}.default.svc:9290"
    assert settings.kafka_advertised_listeners == f"muster-engine-1.{service}.default.svc:9092"
    [line] = [each for each in (ENGINE / "kubernetes.yaml").read_text().splitlines() if "certs init" in each]
    assert f"*.{service}.default.svc" in line


def test_what_pods_serve_is_secure_as_it_comes() -> None:
    settings = of_kubernetes(1)
    assert (settings.authorizer, settings.super_users) == ("acl", "User:CN=admin")
    assert list(find_open_listeners(settings.listener_addresses, settings.authorizer)) == []
    assert settings.certificates_of("grpc").ssl_client_auth == "required"
    assert settings.http_probes_anonymous
    [line] = [each for each in (ENGINE / "kubernetes.yaml").read_text().splitlines() if "certs init" in each]
    assert line.endswith("--clients admin")


def test_the_network_says_who_gets_to_the_doors_and_to_the_brokers_behind_them() -> None:
    found = manifests()
    policy = found["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == found["StatefulSet"]["metadata"]["labels"]
    [clients] = policy["ingress"]
    *named, brokers = clients["ports"]
    assert [each["port"] for each in named] == ["grpc", "https", "kafka"]
    assert parse_ports(f"{brokers['port']}-{brokers['endPort']}") == of_kubernetes(0).broker_ports


def test_secrets_are_read_where_the_settings_look() -> None:
    [container] = pod()["containers"]
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert (mounts["tls"]["mountPath"], "subPath" in mounts["tls"]) == (TLS, False), "it follows a renewed secret"
    assert of_kubernetes(1).certificates_of("kafka").ssl_keystore_location == f"{TLS}/server.pem"
    assert container["args"][container["args"].index("--config") + 1] == mounts["config"]["mountPath"]
    assert [each["secret"]["defaultMode"] for each in pod()["volumes"]] == [READABLE, READABLE]
    assert [each["secret"]["secretName"] for each in pod()["volumes"]] == ["muster-engine-tls", "muster-engine"]


@pytest.mark.parametrize("path", [ENGINE / "compose.yaml", ENGINE / "kubernetes.yaml"], ids=lambda path: path.name)
def test_commands_in_comments_are_understood(path: Path) -> None:
    lines = [line.removeprefix("#") for line in path.read_text().splitlines() if line.startswith("#")]
    said = [line.partition(" muster ")[2].split() for line in lines if " muster " in line and "`" not in line]
    assert said
    for words in said:
        parsed([word.strip("'") for word in words])
