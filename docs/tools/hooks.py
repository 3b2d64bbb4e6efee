"""What `mkdocs build` calls: pages that are made, parts of pages that are made, links to what lies beside docs/."""

import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.tools import commands
from docs.tools.examples import fenced

ROOT = Path(__file__).parents[2]
MADE = re.compile(r"^<!-- made: (\w+)\.(\w+)((?: [\w-]+)*) -->$", re.MULTILINE)
"""A line of a page in whose place comes what a function of docs/tools answers: module.function, then its arguments."""
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)]*)?\))")
FOREIGN = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>|url\(\s*["']?https?:"""
)

BESIDE = {
    "README.md": "first-steps.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the repository that are pages here, too."""
STANDS_FOR = {
    "deploy": "deployment.md",
    "deploy/coordinator.properties": "reference/node-settings.md",
    "docs/protocol": "protocol/README.md",
    "docs/assignors": "assignors/index.md",
    "docs": "index.md",
    "proto": "reference/grpc/index.md",
}
"""What the repository's pages lead to that is no page, and the page that tells of it."""


def on_config(config: MkDocsConfig) -> None:
    """Every command has its place in the navigation, below `Commands`."""
    for part in config.nav or []:
        for entry in part.get("Reference", []):
            if "Commands" in entry:
                entry["Commands"] += [{f"muster {name}": f"reference/cli/{name}.md"} for name in commands.commands()]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in commands.commands():
        files.append(File.generated(config, f"reference/cli/{name}.md", content=commands.page(name)))
    for source, page in BESIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    return leading(fenced(with_made(markdown)), page.file.src_uri)


def with_made(markdown: str) -> str:
    """The page with what is made in its places."""

    def made(match: re.Match[str]) -> str:
        module = import_module(f"docs.tools.{match[1]}")
        return str(getattr(module, match[2])(*match[3].split()))

    return MADE.sub(made, markdown)


def leading(markdown: str, uri: str) -> str:
    """The page with links to what lies beside docs/ turned to the pages that tell of it."""
    origin = next((source for source, made in BESIDE.items() if made == uri), f"docs/{uri}")

    def turned(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match[2]))
        return f"{match[1]}{posixpath.relpath(place_of(target), posixpath.dirname(uri) or '.')}{match[3]}"

    return LINK.sub(turned, markdown)


def place_of(path: str) -> str:
    """The page, below docs/, that tells of a path of the repository.

    >>> place_of("CHANGELOG.md"), place_of("docs/spark.md"), place_of("deploy/Dockerfile")
    ('changelog.md', 'spark.md', 'deployment.md')
    """
    if path in BESIDE:
        return BESIDE[path]
    known = path
    while known and known not in STANDS_FOR:
        known = posixpath.dirname(known)
    if path.startswith("docs/") and path not in STANDS_FOR:
        return path.removeprefix("docs/")
    # Whatever else there may be is left as it is, and mkdocs says that the link leads nowhere.
    return STANDS_FOR.get(known, f"../{path}")


def on_post_build(config: MkDocsConfig) -> None:
    """Who reads these pages is not told to anybody: nothing in them is loaded from another host. Raises PluginError."""
    site = Path(config.site_dir)
    asked = [
        f"{path.relative_to(site)}: {found[0]}"
        for path in sorted((*site.rglob("*.html"), *site.rglob("*.css")))
        for found in FOREIGN.finditer(path.read_text(encoding="utf-8"))
        if 'rel="canonical"' not in found[0]
    ]
    if asked:
        raise PluginError("pages load from other hosts:\n" + "\n".join(asked[:20]))
