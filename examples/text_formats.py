"""Reads sentences from files as their publishers offer them: plain text, gzip, tar, SGML, XML, TMX.

A SPEC is a file, or ARCHIVE:MEMBER. A MEMBER with * stands for several files, read in the order of their names.
"""

import fnmatch
import gzip
import html
import os
import re
import tarfile
import zlib
from itertools import zip_longest
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

from recipe import RecipeError

ARCHIVE = re.compile(r"(.+?\.(?:tgz|tar\.gz|tar)):(.+)")
DAMAGE = (EOFError, OSError, tarfile.TarError, zlib.error)  # what a truncated or corrupted file raises
Reader = Callable[[Iterable[str], str], Iterator[str]]


def read_index(path: str) -> Dict[str, str]:
    """The paths of the original files by name, as download.py wrote them. Without the file: none."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return dict(line.rstrip("\n").split("\t", 1) for line in file)


def located(spec: str, index: Dict[str, str]) -> str:
    """The SPEC with the path of its file, where the index has the file."""
    name, colon, member = spec.partition(":")
    return index[name] + colon + member if name in index else spec


def raw_lines(spec: str) -> Iterator[bytes]:
    """The lines of a file or of an archive's members."""
    match = ARCHIVE.fullmatch(spec)
    try:
        if match:
            yield from _member_lines(*match.groups())
        else:
            with open(spec, "rb") as file:
                yield from _unzipped(file, spec)
    except FileNotFoundError:
        raise RecipeError(f"{spec} is missing") from None
    except DAMAGE as error:
        raise RecipeError(f"{spec} is damaged ({error or type(error).__name__}): download it again") from None


def _member_lines(path: str, pattern: str) -> Iterator[bytes]:
    several, any_member = "*" in pattern, False
    with tarfile.open(path) as archive:
        # Sorted, because the files of the two languages need not have the same order in an archive.
        for member in sorted(archive, key=lambda m: m.name) if several else archive:
            name = member.name[2:] if member.name.startswith("./") else member.name
            if member.isfile() and fnmatch.fnmatchcase(name, pattern):
                any_member = True
                yield from _unzipped(archive.extractfile(member), name)
                if not several:
                    return
    if not any_member:
        raise RecipeError(f"{path} has no {pattern}: is it the original archive?")


def _unzipped(file, name: str):
    return gzip.open(file) if name.endswith(".gz") else file


def decoded(spec: str, encoding: str) -> Iterator[str]:
    for number, line in enumerate(raw_lines(spec), 1):
        try:
            yield line.decode(encoding)
        except UnicodeDecodeError:
            raise RecipeError(f"{spec}, line {number}, is not {encoding}") from None


# --- one function per format: lines of a file, and the language, to sentences


def sgml(lines: Iterable[str], _: str) -> Iterator[str]:
    """The segments of WMT's .sgm and IWSLT's .xml. As in sacrebleu, nothing is unescaped."""
    for line in lines:
        match = re.search(r"<seg[^>]*>(.*)</seg>", line)
        if match:
            yield match[1]


def iwslt_training(lines: Iterable[str], _: str) -> Iterator[str]:
    """Talks with tags between them. Titles and descriptions are text, other tags are not."""
    for line in lines:
        if not re.match(r"\s*</?(url|talkid|keywords|speaker|reviewer|translator|transcript|doc)\b", line):
            yield re.sub(r"</?(title|description)>", "", line)


def tmx(lines: Iterable[str], lang: str) -> Iterator[str]:
    for line in lines:
        match = re.search(rf'<tuv xml:lang="{lang}"[^>]*>\s*<seg>(.*?)</seg>', line)
        if match:
            yield html.unescape(match[1])


def titles(order: Sequence[str]) -> Reader:
    """Wikipedia headlines: both languages on one line, in the order of the file's name."""

    def read(lines: Iterable[str], lang: str) -> Iterator[str]:
        for line in lines:
            yield (line.split("|||") + [""])[order.index(lang)]

    return read


def plain(lines: Iterable[str], _: str) -> Iterator[str]:
    for line in lines:
        yield re.sub(r"^<s [^>]*>|</s>\s*$", "", line)  # the test sentences of the Hansards carry their number


def reader(spec: str) -> Reader:
    """The reader for a file, chosen by its name."""
    name = spec[:-3] if spec.endswith(".gz") else spec
    two = re.search(r"/titles\.(\w+)-(\w+)$", name)
    if two:
        return titles(two.groups())
    if "/train.tags." in name:
        return iwslt_training
    return {".sgm": sgml, ".xml": sgml, ".tmx": tmx}.get(os.path.splitext(name)[1], plain)


def sentences(spec: str, lang: str, encoding: str) -> Iterator[str]:
    """One sentence at a time. All white space becomes single spaces, so that no character in a sentence ends a line."""
    for line in reader(spec)(decoded(spec, encoding), lang):
        yield " ".join(line.split())


def pairs(specs: Sequence[str], langs: List[str], encoding: str = "utf-8") -> Iterator[Tuple[str, str]]:
    """Sentence pairs. The specs are the source's and the target's in turn."""
    for source, target in zip(specs[::2], specs[1::2]):
        count = 0
        both = (sentences(spec, lang, encoding) for spec, lang in zip((source, target), langs))
        for pair in zip_longest(*both):
            if None in pair:
                longer, shorter = (target, source) if pair[0] is None else (source, target)
                raise RecipeError(
                    f"{shorter} ends after {count} lines and {longer} does not: they are not translations of each other"
                )
            count += 1
            yield pair
        if count == 0:
            raise RecipeError(f"{source} has no text")
