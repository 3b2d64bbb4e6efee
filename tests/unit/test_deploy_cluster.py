"""What lies in deploy/cluster agrees with the code, and with itself: three nodes that find each other."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.coordinator.config import Settings, load_settings, parse_address
from muster.coordinator.config.listener_security import find_open_listeners
from muster.coordinator.web.http import monitoring
from tests.fakes.asked_node import AskedNode
from tests.unit.test_deploy import DRAIN_S, USER, parsed

CLUSTER = Path(__file__).parents[2] / "deploy" / "cluster"
PROPERTIES = CLUSTER / "cluster.properties"
NUMBERS = (1, 2, 3)
Pairs = dict[str, str]


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CLUSTER / "compose.yaml").read_text())["services"]
    return found


def manifests() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())}


def pairs(text: str) -> Pairs:
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def of_compose(number: int) -> Settings:
    given = parsed(services()[f"node-{number}"]["command"])[1]["overrides"]
    return load_settings(PROPERTIES, given)


def of_kubernetes(number: int) -> Settings:
    [container] = manifests()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    known = {"POD_NAME": f"muster-{number}", "POD_NUMBER": str(number), "POD_NAMESPACE": "default"}
    assert {each["name"] for each in container["env"]} == set(known)
    overrides = parsed(container["args"])[1]["overrides"]
    for name, value in known.items():
        overrides = {key: text.replace(f"$({name})", value) for key, text in overrides.items()}
    return load_settings(None, pairs(manifests()["ConfigMap"]["data"]["cluster.properties"]) | overrides)


@pytest.mark.parametrize("of", [of_compose, of_kubernetes])
def test_three_nodes_have_numbers_and_addresses_of_their_own_and_one_zookeeper(of: Any) -> None:
    nodes = [of(number) for number in NUMBERS]
    assert [node.node_id for node in nodes] == list(NUMBERS)
    assert len({node.zookeeper_connect for node in nodes}) == 1
    for of_node in ("advertised_listeners", "inter_broker_advertised_listeners"):
        assert len({getattr(node, of_node) for node in nodes}) == len(nodes)
    for node in nodes:
        assert node.replication_listener is not None
        assert {door.encrypted for door in node.listener_addresses.values()} == {True}
        assert node.http_probes_anonymous
        assert (node.default_replication_factor, node.min_insync_replicas) == (3, 2)


def test_both_run_with_the_same_settings() -> None:
    mapped = pairs(manifests()["ConfigMap"]["data"]["cluster.properties"])
    assert mapped == pairs(PROPERTIES.read_text()) | {"zookeeper.connect": of_compose(1).zookeeper_connect}


@pytest.mark.parametrize("number", NUMBERS)
def test_each_node_of_compose_is_reached_where_it_says(number: int) -> None:
    node, settings = services()[f"node-{number}"], of_compose(number)
    host, port = parse_address(settings.advertised_listeners)
    assert (host, f"127.0.0.1:{port}:{settings.listen_port}") == ("localhost", node["ports"][0])
    inside = parse_address(settings.inter_broker_advertised_listeners)
    assert inside == (
        node["hostname"],
        settings.replication_listener.address.port if settings.replication_listener else 0,
    )
    assert node["hostname"] == f"node-{number}"
    told = node.get("environment", {}).get("MUSTER_BOOTSTRAP", "localhost:9290")
    assert told == settings.advertised_listeners, "commands in the container ask their own node"
    names = services()["certificates"]["command"][services()["certificates"]["command"].index("--hosts") + 1]
    assert {host, inside.host} <= set(names.split(",")), "its certificate has these names"
    assert f"data-{number}:{settings.data_dir}" in node["volumes"]
    assert settings.zookeeper_connect.split(":")[0] in services()
    assert int(node["stop_grace_period"].rstrip("s")) > 2 * DRAIN_S


def test_pods_stand_on_different_machines_and_one_goes_at_a_time() -> None:
    found = manifests()
    spec, labels = found["StatefulSet"]["spec"], found["StatefulSet"]["metadata"]["labels"]
    pod = spec["template"]["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"]) == (3, "Parallel")
    [apart] = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    budget = found["PodDisruptionBudget"]["spec"]
    assert budget["maxUnavailable"] == 1
    for selector in (apart["labelSelector"], budget["selector"], spec["selector"]):
        assert selector["matchLabels"] == labels == spec["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["publishNotReadyAddresses"], "nodes call each other before they are ready"
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["terminationGracePeriodSeconds"] > 2 * DRAIN_S


@pytest.mark.parametrize("of", [of_compose, of_kubernetes])
def test_what_others_reach_is_secure_as_it_comes(of: Any) -> None:
    settings = of(1)
    assert {name for name, door in settings.listener_addresses.items() if door.encrypted} == {
        "grpc",
        "http",
        "replication",
    }
    for door in ("grpc", "replication"):
        assert settings.certificates_of(door).ssl_client_auth == "required"
    assert (settings.authorizer, settings.super_users) == ("acl", "User:CN=admin;User:CN=localhost")
    assert list(find_open_listeners(settings.listener_addresses, settings.authorizer)) == []
    assert not settings.http_insecure


def test_the_nodes_are_known_by_the_name_in_their_certificate() -> None:
    """`certs init` puts the first host there."""
    command = services()["certificates"]["command"]
    assert command[command.index("--hosts") + 1].split(",")[0] == "localhost"
    [line] = [each for each in (CLUSTER / "kubernetes.yaml").read_text().splitlines() if "certs init" in each]
    assert "--hosts 'localhost," in line


def test_the_network_says_who_gets_to_the_doors() -> None:
    for number in NUMBERS:
        assert all(each.startswith("127.0.0.1:") for each in services()[f"node-{number}"]["ports"])
    assert "ports" not in services()["zookeeper"]
    found = manifests()
    policy, labels = found["NetworkPolicy"]["spec"], found["StatefulSet"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels
    clients, nodes = policy["ingress"]
    assert [each["port"] for each in nodes["ports"]] == ["nodes"]
    assert [each["podSelector"]["matchLabels"] for each in nodes["from"]] == [labels]
    assert {each["port"] for each in (*clients["ports"], *nodes["ports"])} == {
        each["targetPort"] for each in found["Service"]["spec"]["ports"]
    }


def test_ports_probes_and_names_of_the_pods_agree_with_the_node() -> None:
    found, settings = manifests(), of_kubernetes(1)
    [container] = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert settings.http_address is not None
    assert settings.replication_listener is not None
    assert ports == {
        "grpc": settings.listen_port,
        "https": settings.http_address.port,
        "nodes": settings.replication_listener.address.port,
    }
    assert {each["targetPort"]: each["port"] for each in found["Service"]["spec"]["ports"]} == ports
    asked = {route.path for route in monitoring.probe_routes(AskedNode())}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in asked
    service = found["StatefulSet"]["spec"]["serviceName"]
    assert settings.advertised_listeners == f"muster-1.{service}.default.svc:9290"
    assert settings.inter_broker_advertised_listeners == f"muster-1.{service}.default.svc:9292"
    assert {"name": "data", "mountPath": str(settings.data_dir)} in container["volumeMounts"]
