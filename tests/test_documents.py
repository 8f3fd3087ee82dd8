"""Every command and code block of the READMEs, the guides and the concepts runs; every figure in
them was measured; both languages say the same. CONTRIBUTING.md tells how blocks are marked."""

import ast
import doctest
import re
import shlex
import socket
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

from docs._build import markdown, python_api
from docs._build.imports import ROOT
from tests.documents import blocks as blocks_
from tests.documents import commands, figures
from tests.documents import workspace as workspace_
from tests.documents.blocks import LANGUAGES, RUNNING, Block, blocks, prose
from tests.documents.workspace import Workspace, shows, warmed

PAGES = [
    ROOT / "README.md",
    ROOT / "docs/index.md",
    *(p for d in ("guides", "concepts") for p in sorted((ROOT / "docs" / d).glob("*.md"))),
]
ENGLISH = [path for path in PAGES if not path.name.endswith(".zh.md")]
BOTH = [path for page in ENGLISH for path in (page, page.with_suffix(".zh.md"))]
# Not run here (the plans on scaling are, by tests/lab/test_plan.py), but what they name exists.
OTHERS = [
    path
    for folder, pattern in ((ROOT, "*.md"), (ROOT / ".github", "**/*.md"), (ROOT / "docs", "*.md"))
    for path in sorted(folder.glob(pattern))
    if path not in BOTH
]


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def read(path: Path) -> str:
    assert path.exists(), f"{short(path)} is missing"
    return path.read_text(encoding="utf-8")


def with_outputs(page: str) -> Iterator[tuple[Block, str]]:
    """Blocks that run or might, each with the output that is shown for it."""
    end = Block("", "", 0)
    for block, following in pairwise([*blocks(page), end]):
        if block.language in RUNNING:
            shown = following.follows and following.language == "text"
            yield block, following.code if shown else ""


# What is run


@pytest.fixture(scope="module")
def warm() -> Iterator[str]:
    with warmed() as path:
        yield path


@pytest.fixture
def port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.fixture
def workspace(tmp_path, warm, port, monkeypatch) -> Iterator:
    """`workspace("zh", "name")` is a folder to run blocks in, for a reader of Chinese."""
    made: list[Workspace] = []

    def make(language: str, name: str) -> Workspace:
        folder = tmp_path / "我的 work" / name
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(folder)
        made.append(Workspace(folder, warm, language, port))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.deep
@pytest.mark.parametrize("path", ENGLISH, ids=short)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(path, workspace):
    """Chinese blocks that are not the English ones run too; apart, where they make other files."""
    english, chinese = ([*with_outputs(read(p))] for p in (path, path.with_suffix(".zh.md")))
    same = [
        (en.language, en.commands, en_shown) == (zh.language, zh.commands, zh_shown)
        for (en, en_shown), (zh, zh_shown) in zip(english, chinese, strict=True)
    ]
    first = workspace("en", "en")
    play(first, english)
    others = [block for alike, (block, _) in zip(same, chinese, strict=True) if not alike]
    if any(map(makes, others)):
        first.close()  # its server has the port that the next one asks for
        play(workspace("zh", "zh"), chinese)
    elif others:  # Python's names were made by the blocks before
        known = [*others, *(block for block, _ in chinese if block.language == "python")]
        play(workspace("zh", "en"), chinese, known)


def makes(block: Block) -> bool:
    """Whether a block leaves files behind that would be in the way of another language's block."""
    return bool(re.search(r"glasshead (train|import|export|atlas)|>", block.code))


def play(place: Workspace, page: list[tuple[Block, str]], only: Sequence[Block] = ()) -> None:
    """Run blocks and compare what they print with what is shown. Behind a block that was run with
    a smaller setting the numbers are others: from there on only mistakes are compared."""
    reduced = False
    for block, shown in page:
        reduced |= bool(block.more)
        if block.not_run or (only and block not in only):
            continue
        try:
            place.run(block)
        except Exception as error:
            raise AssertionError(f"line {block.line}: {type(error).__name__}: {error}") from error
        if shown and (block.fails or not reduced):
            seen = shows(place.with_port(shown), place.printed)
            assert seen, f"line {block.line} printed\n{place.printed}"


# What is read


def test_a_block_that_is_not_run_is_one_of_commands_which_are_checked():
    not_run = [(short(path), b) for path in BOTH for b in blocks(read(path)) if b.not_run]
    assert not_run
    others = [f"{name}:{block.line}" for name, block in not_run if block.language != "bash"]
    assert others == []


@pytest.mark.parametrize("path", [*BOTH, *OTHERS], ids=short)
def test_commands_flags_targets_and_extras_exist(path):
    page = read(path)
    lines = [x for b in blocks(page) if b.language == "bash" for x in b.commands]
    wrong = [wrong for line in lines for wrong in commands.wrongs(line)]
    wrong += [wrong for line in commands.inline(page) for wrong in commands.inline_wrongs(line)]
    assert wrong == []


@pytest.mark.parametrize("path", BOTH, ids=short)
def test_every_block_is_of_a_kind_that_is_checked(path):
    page = read(path)
    assert {block.language for block in blocks(page)} <= LANGUAGES
    unfenced = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(?: {4}|\t)(?:\S*glasshead|make|python|pip|\$) .*", unfenced, re.M) == []


@pytest.mark.parametrize("path", ENGLISH, ids=short)
def test_both_languages_have_the_same_blocks(path):
    english, chinese = (read(p) for p in (path, path.with_suffix(".zh.md")))
    assert [skeleton(b) for b in blocks(english)] == [skeleton(b) for b in blocks(chinese)]
    pictures = [re.findall(r"!\[[^]]*\]\(([^)]+)\)", page) for page in (english, chinese)]
    assert pictures[0] == pictures[1]
    headings = [re.findall(r"^#+", prose(page), re.MULTILINE) for page in (english, chinese)]
    assert headings[0] == headings[1]


def skeleton(block: Block) -> object:
    """A block without what a translation changes: words, numbers in prose, comments."""
    how = (block.language, block.more, block.fails, block.background, bool(block.not_run))
    if block.language == "bash":
        words = [shlex.split(line) for line in block.commands]
        return how, [(w[0], [x for x in w if x.startswith("--")]) for w in words]
    if block.language == "python":
        tree = ast.parse(block.code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = ""
        return how, ast.dump(tree)
    return how


@pytest.mark.parametrize("path", BOTH, ids=short)
def test_figures_are_those_of_the_stored_results(path):
    page = read(path)
    results = figures.measured() | figures.computed(page)
    unknown = [f for f in figures.figures(page) if not figures.is_measured(f, results)]
    assert unknown == [], "neither a stored result nor computed on the page"


@pytest.mark.parametrize("path", [*BOTH, *OTHERS], ids=short)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", read(path)):
        if not re.match(r"https?:|mailto:|#", target):
            place = path.parent / unquote(target.partition("#")[0])
            assert place.exists(), target
            if path.name.endswith(".zh.md") and path.with_suffix("").with_suffix(".md") != place:
                assert not place.with_suffix(".zh.md").exists(), f"{target} is there in Chinese"


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_a_readme_is_short_and_begins_with_what_it_is(name):
    lines = read(ROOT / name).splitlines()
    assert len(lines) <= 150
    assert lines[0] == "# Glasshead"
    assert not lines[2].startswith(("[!", "!["))


# That what is wrong is found


@pytest.mark.parametrize(
    "module",
    [blocks_, commands, figures, workspace_, markdown, python_api],
    ids=lambda m: m.__name__,
)
def test_examples_in_the_tools_are_true(module):
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 0) == (0, True)


@pytest.mark.parametrize(
    "line",
    [
        "glasshead trian my.txt",
        "glasshead train my.txt --stepz 3",
        "cat my.txt | glasshead score runs/mine - --tokenz",
        "torchrun --nproc-per-node 8 -m glasshead train my.txt --no-such",
        "make nonsense",
        'pip install "glasshead[everything]"',
        "glasshead generate runs/mine 'Once",
    ],
)
def test_a_wrong_command_line_is_found(line):
    assert len(commands.wrongs(line)) == 1


def test_a_mark_that_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="nobody knows"):
        list(blocks("<!-- run: quickly -->\n```bash\nmake demo\n```"))


@pytest.mark.deep
def test_a_block_that_fails_is_found(workspace):
    place = workspace("en", "failing")
    for code in ("glasshead trian", "false | true; false", "glasshead steps 'a b' --query c"):
        with pytest.raises(AssertionError):
            place.run(Block("bash", code, 1))
    with pytest.raises(AssertionError):
        place.run(Block("bash", "glasshead world --show 1", 1, fails=True))
    place.run(Block("bash", "glasshead trian", 1, fails=True))
    assert "hint: did you mean 'train'?" in place.printed


def test_an_output_that_was_not_printed_is_found(tmp_path):
    place = Workspace(tmp_path, "no socket: Python runs here", "en", port=1)
    right = [*with_outputs('```python\nprint("a b")\n```\n\n```text\na …\n```')]
    wrong = [*with_outputs('```python\nprint("a b")\n```\n\n```text\na c\n```')]
    play(place, right)
    with pytest.raises(AssertionError, match="printed"):
        play(place, wrong)


def test_a_figure_that_was_not_measured_is_found():
    results = figures.measured()
    assert figures.is_measured("42.1", results)
    assert not figures.is_measured("42.197", results)
