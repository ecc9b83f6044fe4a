"""The docs are true: the links, anchors, paths, imports, commands and flags that they name exist.

Nothing here needs torch, but for the parsers of `average`, `convert` and `bench`: without it they are skipped.
"""

import argparse
import ast
import importlib
import re
import unicodedata
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

import pytest

from fairseq_rela import cli

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")])
MOST_README_LINES = 220

# fairseq's commands that read batches; the others (preprocess) have no such flag
READS_BATCHES = re.compile(r"fairseq-(train|generate|interactive|validate|eval-lm)\b")
BATCH_FLAG = re.compile(r"--required-batch-size-multiple[ =]1(?!\d)")

# the modules that docs/contributing.md tells the reader to write
WRITTEN_BY_THE_READER = {"fairseq_rela.analysis.mass"}

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:fairseq_rela|examples|tests|docs|\.ci)(?:/[\w.*-]+)+/?")


each_doc = pytest.mark.parametrize("doc", DOCS, ids=lambda doc: str(doc.relative_to(ROOT)))


def without_code(text: str) -> str:
    """The text without its fenced blocks."""
    return FENCE.sub("", text)


def blocks(text: str, language: str) -> List[str]:
    """The fenced blocks of a language."""
    return [body for name, body in FENCE.findall(text) if name == language]


def shell_lines(text: str) -> Iterator[str]:
    """Each command line of the bash blocks, joined where it is continued, without its comment."""
    for block in blocks(text, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            yield re.sub(r"(^|\s)#.*", "", line)


def commands(text: str) -> Iterator[str]:
    """The command lines, and what is inline code."""
    yield from shell_lines(text)
    yield from INLINE.findall(without_code(text))


def anchors(doc: Path) -> Set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    names: Set[str] = set()
    for heading in re.findall(r"^#+ +(.+)$", without_code(doc.read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
        kept = (c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN")
        names.add("".join(kept).replace(" ", "-"))
    return names


def flags_of(parser: argparse.ArgumentParser) -> Set[str]:
    return {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}


def subcommand_parser(name: str) -> argparse.ArgumentParser:
    """A subcommand's own parser. Imports its module, which for some needs torch: then the test is skipped."""
    row = cli.COMMANDS[name]
    module = row[0] if isinstance(row, tuple) else f"fairseq_rela.commands.{name.replace('-', '_')}"
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"{module}: {error}")
    parser = argparse.ArgumentParser(prog=f"fairseq-rela {name}")
    loaded.add_arguments(parser)
    return parser


def flags_with_parts(name: str) -> Set[str]:
    """All flags of a subcommand, those of its parts (`bench op`, `bench lm`) included."""
    parser = subcommand_parser(name)
    flags = flags_of(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                flags |= flags_of(part)
    return flags


def parts_of(name: str) -> Set[str]:
    parts: Set[str] = set()
    for action in subcommand_parser(name)._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts |= set(action.choices)
    return parts


def our_commands() -> Dict[str, List[Tuple[str, str]]]:
    """subcommand → (page, the words after it), for each `fairseq-rela SUBCOMMAND …` of the docs."""
    named: Dict[str, List[Tuple[str, str]]] = {}
    for doc in DOCS:
        for command in commands(doc.read_text(encoding="utf-8")):
            for call in re.split(r"[|;()]", command):
                match = re.match(r"\s*(?:[A-Z_]+=\S+\s+)*fairseq-rela +([\w-]+)(.*)", call)
                if match and not match[1].startswith("-"):
                    named.setdefault(match[1], []).append((str(doc.relative_to(ROOT)), match[2]))
    return named


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_README_LINES


@each_doc
def test_relative_links_and_anchors_exist(doc):
    missing = []
    for target in LINK.findall(without_code(doc.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", target):
            continue  # an address
        path, _, anchor = target.partition("#")
        file = (doc.parent / path).resolve() if path else doc
        if not file.exists() or (anchor and anchor not in anchors(file)):
            missing.append(target)
    assert missing == []


def names_bound_in(file: Path) -> Set[str]:
    """What can be imported from a file, without importing it: definitions, imports, and names given as strings."""
    names: Set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)  # in __all__, or in a table for a lazy __getattr__
    return names


@each_doc
def test_imports_exist(doc):
    """`from fairseq_rela.x import name`: there is such a module, and the name is in it."""
    missing = []
    for module, name in re.findall(r"from (fairseq_rela[\w.]*) import (\w+)", doc.read_text(encoding="utf-8")):
        path = ROOT.joinpath(*module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if module not in WRITTEN_BY_THE_READER and not (file.exists() and name in names_bound_in(file)):
            missing.append(f"{module}.{name}")
    assert missing == []


@each_doc
def test_paths_exist(doc):
    text = doc.read_text(encoding="utf-8")
    named = {path.rstrip(".") for code in commands(text) for path in PATH.findall(code)}
    missing = [path for path in sorted(named) if not any(ROOT.glob(path.rstrip("/")))]
    assert missing == []


def test_every_page_is_reached_from_the_readme():
    """Every page is linked from another one, because nobody finds it otherwise."""
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = LINK.findall(without_code(page.read_text(encoding="utf-8")))
        files = [(page.parent / target.partition("#")[0]).resolve() for target in targets if ".md" in target]
        waiting += [file for file in files if file.exists() and file.suffix == ".md"]
    reached_otherwise = {ROOT / "CONTRIBUTING.md"}  # GitHub shows it
    assert [doc for doc in DOCS if doc not in seen | reached_otherwise] == []


@each_doc
def test_fairseq_commands_keep_every_sentence(doc):
    """fairseq's default drops a last batch of fewer than 8 sentences."""
    text = doc.read_text(encoding="utf-8")
    assert [call for line in shell_lines(text) for call in dropping_sentences(line)] == []
    assert not re.search(r"^[ \t]+```", text, re.MULTILINE), "a block that is indented is not looked at"


def dropping_sentences(line: str) -> List[str]:
    """The commands of a line of shell that read batches and lack the flag."""
    calls = (call.partition(" #")[0].strip() for call in re.split(r"\||;|&&", line))
    return [call for call in calls if READS_BATCHES.search(call) and not BATCH_FLAG.search(call)]


@pytest.mark.parametrize(
    "line, found",
    [
        ("fairseq-train d --required-batch-size-multiple 1 --cpu", []),
        ("fairseq-preprocess -s a -t b && fairseq-eval-lm d --required-batch-size-multiple=1", []),
        ("fairseq-train d --required-batch-size-multiple 16", ["fairseq-train d --required-batch-size-multiple 16"]),
        ("fairseq-train d && fairseq-generate d --required-batch-size-multiple 1", ["fairseq-train d"]),
        ("fairseq-train d  # --required-batch-size-multiple 1", ["fairseq-train d"]),
    ],
)
def test_commands_that_drop_sentences_are_found(line: str, found: List[str]):
    assert dropping_sentences(line) == found


def test_printed_commands_keep_every_sentence():
    """The blocks that are not bash show what a command prints: `convert` prints a command, too."""
    lines = [(doc.name, line) for doc in DOCS for line in printed_lines(doc)]
    printed = [(name, call) for name, line in lines for call in commands_in(line)]
    assert "warm-start.md" in [name for name, _ in printed]
    assert [place for place in printed if not BATCH_FLAG.search(place[1])] == []


def printed_lines(doc: Path) -> Iterator[str]:
    """The lines of the blocks that are not bash."""
    for language, block in FENCE.findall(doc.read_text(encoding="utf-8")):
        if language != "bash":
            yield from block.splitlines()


def commands_in(text: str) -> Iterator[str]:
    """Every command of fairseq that reads batches in a script or a docstring, each up to the next empty line.

    Prose is not a command: the data stands after the name of a command.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for paragraph in "\n".join(lines).split("\n\n"):
        for match in re.finditer(READS_BATCHES.pattern + r' (?="?\$|DATA\b|data)', paragraph):
            yield paragraph[match.start() :]


def test_scripts_and_help_keep_every_sentence():
    """Recipes, and the commands that our modules and their --help show."""
    files = [*ROOT.glob("examples/**/*.sh"), *ROOT.glob("examples/*.py"), *ROOT.glob("fairseq_rela/**/*.py")]
    calls = [(file.name, call) for file in files for call in commands_in(file.read_text(encoding="utf-8"))]
    assert {"train.sh", "generate.sh", "analyze.sh", "quickstart.sh", "language_model.sh"} <= {
        name for name, _ in calls
    }
    assert [place for place in calls if not BATCH_FLAG.search(place[1])] == []


def test_every_subcommand_that_is_named_exists():
    unknown = {name: uses for name, uses in our_commands().items() if name not in (*cli.COMMANDS, "SUBCOMMAND")}
    assert unknown == {}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_flag_of_a_subcommand_exists(name):
    known, parts = flags_with_parts(name), parts_of(name)
    wrong = []
    for page, words in our_commands().get(name, []):
        wrong += [(page, flag) for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", words) if flag not in known | {"--help"}]
        first = re.match(r" +([a-z]+)", words)
        if parts and first and first[1] not in parts:
            wrong.append((page, first[1]))
    assert wrong == []


def test_every_subcommand_is_documented():
    text = "".join(doc.read_text(encoding="utf-8") for doc in DOCS)
    missing = [name for name in cli.COMMANDS if f"fairseq-rela {name}" not in text and f"`{name}`" not in text]
    assert missing == []


def names_in_the_sources() -> Set[str]:
    """Every string, variable and field of our models, criteria, tasks and attention, by which they define flags."""
    names: Set[str] = set()
    for part in ("models", "criterions", "tasks", "attention"):
        for file in (ROOT / "fairseq_rela" / part).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    names.add(node.value)
                if isinstance(node, ast.Name):
                    names.add(node.id)
    return names


def test_every_flag_that_the_plugin_adds_to_fairseq_exists():
    text = "".join(doc.read_text(encoding="utf-8") for doc in DOCS)
    named = set(re.findall(r"--((?:attn|rela)-[\w-]+|(?:encoder|decoder|cross)-attn)\b", text))
    by_kind = {"encoder-attn", "decoder-attn", "cross-attn"}  # made by a loop over the kinds
    assert by_kind <= named
    sources = names_in_the_sources()
    assert sorted(flag for flag in named - by_kind if flag.replace("-", "_") not in sources) == []


def test_every_attention_of_the_catalog_is_in_the_training_page():
    source = (ROOT / "fairseq_rela/attention/catalog.py").read_text(encoding="utf-8")
    rows = re.findall(r'^    "(\w+)": Attention\(', source, re.MULTILINE)
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    assert len(rows) >= 10
    assert [row for row in rows if f"`{row}`" not in page] == []
