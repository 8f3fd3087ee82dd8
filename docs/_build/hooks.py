"""What mkdocs is told beside mkdocs.yml: pages written from the code, and which are there.

Pages of docs/ and pages that are made now come together in a folder, from which mkdocs builds.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mkdocs.plugins import event_priority

from docs._build import command_line, front_page, lesson_pages, python_api
from docs._build.imports import PACKAGE
from glasshead.lab.lessons import lessons

TOGETHER = TemporaryDirectory(prefix="glasshead-docs-")  # gone when this process ends
ONLY_ENGLISH = '!!! note ""\n    本页只有英文。\n\n'


def made(run_lessons: bool, readers: Path | None) -> Iterator[tuple[str, str | bytes]]:
    """Place and content of each file that does not lie in docs/."""
    yield from front_page.living_pages(readers)
    yield "assets/icon.svg", (PACKAGE / "page/web/icon.svg").read_bytes()
    yield "reference/cli.md", command_line.page("en")
    yield "reference/cli.zh.md", command_line.page("zh")
    yield "reference/python/index.md", python_api.package_page()
    for part in python_api.PARTS:
        yield f"reference/python/{part}.md", python_api.part_page(part)
    results = {}
    for lesson in lessons() if run_lessons else []:
        results[lesson.number], pictures = lesson_pages.played(lesson)
        for name, picture in pictures.items():
            yield f"lessons/img/{name}", picture
    yield from lesson_pages.pages(results)


def together(docs: str, run_lessons: bool, readers: Path | None) -> Path:
    """The folder with all pages in it."""
    folder = Path(TOGETHER.name)
    shutil.copytree(docs, folder, ignore=shutil.ignore_patterns("_build"), dirs_exist_ok=True)
    for place, content in made(run_lessons, readers):
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@event_priority(100)  # before the plugin that sorts pages by language
def on_config(config: Any) -> Any:
    if config.docs_dir != TOGETHER.name:  # it is asked again for each language
        readers = config.extra["readers"]
        lessons = config.extra["run_lessons"]
        folder = together(config.docs_dir, lessons, Path(readers) if readers else None)
        config.docs_dir = str(folder)
        config.nav = [*existing(config.nav, folder)]
    return config


def existing(entries: list[Any], docs: Path) -> Iterator[Any]:
    """Entries of the navigation whose pages are there; a folder stands for all its pages."""
    for entry in entries:
        [(title, place)] = entry.items()
        if isinstance(place, list):
            yield {title: [*existing(place, docs)]}
        elif place.endswith("/"):
            names = {f"{place}{path.name}" for path in (docs / place).glob("*.md")}
            names = {name for name in names if not name.endswith(".zh.md")}
            yield {title: sorted(names, key=lambda name: (not name.endswith("index.md"), name))}
        elif (docs / place).exists():
            yield entry


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Lessons are scripts beside docs/, and pages here. A page that there is in English only says
    so to who reads Chinese."""
    markdown = markdown.replace("](../lessons/)", "](lessons/index.md)")
    if config.theme["language"] != "zh" or page.file.src_uri.endswith(".zh.md"):
        return markdown
    title, gap, text = markdown.partition("\n\n")
    return f"{title}{gap}{ONLY_ENGLISH}{text}"
