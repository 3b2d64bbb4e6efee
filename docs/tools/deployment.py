"""The files of deploy/, as blocks of code."""

from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = {
    "container": ("Dockerfile", "dockerfile"),
    "secure": ("secure.properties", "properties"),
    "commands": ("client.properties", "properties"),
    "compose": ("compose.yaml", "yaml"),
    "systemd": ("muster.service", "ini"),
    "kubernetes": ("kubernetes/muster.yaml", "yaml"),
    "cluster": ("cluster/cluster.properties", "properties"),
    "cluster_compose": ("cluster/compose.yaml", "yaml"),
    "cluster_kubernetes": ("cluster/kubernetes.yaml", "yaml"),
    "engine": ("engine/engine.properties", "properties"),
    "engine_compose": ("engine/compose.yaml", "yaml"),
    "engine_kubernetes": ("engine/kubernetes.yaml", "yaml"),
}


def shown(which: str) -> str:
    name, language = FILES[which]
    return f'```{language} title="deploy/{name}"\n{(DEPLOY / name).read_text(encoding="utf-8").rstrip()}\n```'
