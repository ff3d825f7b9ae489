# SPDX-License-Identifier: Apache-2.0
"""What makes a site of pages that are written for a repository: links that leave docs/, the dialect of Markdown, figures.

README.md is the first page, and the other pages of the root are below project/. A linked source file becomes a page that
shows it. SVG figures and Mermaid graphs stand in the page itself, so that they follow its colours.
"""

import html
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

from mkdocs.structure.files import File
from mkdocs.structure.nav import Link

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import graphs  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
FENCE = re.compile(r"^(```|~~~)")
LIST_ITEM = re.compile(r"^([-*]|\d+\.) ")
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".c": "c", ".py": "python", ".yaml": "yaml", ".txt": "cmake", ".sh": "bash"}


def site_path(path: str) -> str:
    """The page of the site that shows `path`, a file of the repository."""
    if path.startswith("docs/"):
        return path[len("docs/"):]
    if path == "README.md":
        return "index.md"
    return f"project/{path}" if path.endswith(".md") else f"project/{path}.md"


def repository_path(page: str) -> str:
    """The file of the repository that a page of the site shows."""
    if page == "index.md":
        return "README.md"
    if page.startswith("project/"):
        path = page[len("project/"):]
        return path if (ROOT / path).exists() else path[:-len(".md")]
    return f"docs/{page}"


def target_of(link: str, source: str) -> str:
    """The file of the repository that a link in the file `source` names; empty for an address or a place in the page."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:", link):
        return ""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def linked_files():
    """All files outside of docs/ that pages link to, and the pages of the root."""
    waiting = [str(page.relative_to(ROOT)) for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]]
    waiting += ["CHANGELOG.md", "ROADMAP.md", "CONTRIBUTING.md", "SECURITY.md"]
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        if not source.startswith("docs/"):
            yield source
        if not source.endswith(".md"):
            continue
        for link in LINK.findall((ROOT / source).read_text(encoding="utf-8")):
            target = target_of(link, source)
            if target and target not in seen and not target.startswith("docs/") and (ROOT / target).exists():
                seen.add(target)
                waiting.append(target)


def shown(path: str) -> str:
    """The Markdown of a page that shows a file, or lists those of a folder."""
    if (ROOT / path).is_dir():
        listed = subprocess.run(["git", "ls-files", path], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        return f"# {path}\n\n```text\n{listed}```\n"
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{LANGUAGES.get(pathlib.Path(path).suffix, 'text')}\n{text}````\n"


def title_of(page: pathlib.Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def with_site_links(markdown: str, page: str) -> str:
    source = repository_path(page)

    def link(match):
        target = target_of(match[1], source)
        if not target:
            return match[1]
        pages = sorted((ROOT / target).glob("*.md")) if target.startswith("docs/") and (ROOT / target).is_dir() else []
        if pages:  # a folder of pages is its first one
            target = str(pages[0].relative_to(ROOT))
        anchor = match[1].partition("#")[2]
        relative = posixpath.relpath(site_path(target), posixpath.dirname(page) or ".")
        return relative + (f"#{anchor}" if anchor else "")

    return LINK.sub(link, markdown)


def with_inline_figures(markdown: str, page: str) -> str:
    """`![text](images/NAME.svg)` on a line of its own becomes the picture itself."""

    def figure(match):
        svg = (DOCS / posixpath.normpath(posixpath.join(posixpath.dirname(page), match[2]))).read_text(encoding="utf-8")
        svg = svg[svg.index("<svg"):].strip()
        return f'<figure class="baton-figure" role="img" aria-label="{html.escape(match[1])}">\n{svg}\n</figure>'

    return re.sub(r"^!\[([^\]]*)\]\(([^)]+\.svg)\)$", figure, markdown, flags=re.MULTILINE)


def as_python_markdown(markdown: str) -> str:
    """Where GitHub's Markdown differs: a list may follow a line of text, and a bar in a table's code has a backslash."""
    lines, inside, before = [], False, ""
    for line in markdown.splitlines():
        if FENCE.match(line):
            inside = not inside
        if not inside:
            if LIST_ITEM.match(line) and before and not LIST_ITEM.match(before) and not before.startswith(" "):
                lines.append("")
            if line.startswith("|"):
                line = re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line)
        lines.append(line)
        before = line
    return "\n".join(lines) + "\n"


def on_config(config):
    """Entries of the navigation that name many pages."""
    for entry in config.nav:
        for name, value in entry.items():
            if isinstance(value, str) and "*" in value:
                pages = sorted(DOCS.glob(value))
                entry[name] = [{title_of(page): os.path.relpath(page, DOCS)} for page in pages]
    return config


def on_files(files, config):
    for path in linked_files():
        files.append(File.generated(config, site_path(path), content=shown(path)))
    for name in ["baton.css", "iframe-worker.js"]:
        asset = pathlib.Path(__file__).parent / name
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(asset)))
    return files


def on_nav(nav, config, files):
    """build.sh adds the reference of the headers where Doxygen is installed."""
    if shutil.which("doxygen"):
        section = next(item for item in nav.items if item.title == "Reference")
        section.children.append(Link("C++ and C by header", "api/index.html"))
    return nav


def on_page_markdown(markdown, page, config, files):
    path = page.file.src_uri
    if path.startswith(("decisions/", "project/")):
        page.meta["search"] = {"boost": 0.3}  # behind the pages that tell how it is now
    markdown = with_site_links(markdown, path)
    markdown = with_inline_figures(markdown, path)
    return as_python_markdown(graphs.with_graphs(markdown))
