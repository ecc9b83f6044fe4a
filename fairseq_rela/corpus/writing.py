"""The corpus on disk: which sentence belongs to which split, and files written whole or not at all."""

import json
import os
import shutil
import tempfile
import zlib
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from fairseq_rela.corpus.grammar import Grammar, Sentence
from fairseq_rela.corpus.lexicon import Lexicon
from fairseq_rela.corpus.noise import labels, noisy_target
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress

GENERATOR = "fairseq-rela toy-corpus"
VERSION = 1  # of the text: raised whenever the same options give another corpus
DESCRIPTION = "corpus.json"
SPLITS = {"train": 17, "valid": 1, "test": 1, "noisy": 1}  # of all sentences there are, in twentieths
BUCKETS = [split for split, share in SPLITS.items() for _ in range(share)]


class Options(NamedTuple):
    """What a corpus is made from; the same options always give the same bytes."""

    train: int = 20000
    valid: int = 500
    test: int = 500
    noise: int = 0
    lexicon: int = 400
    max_clauses: int = 3
    seed: int = 1
    source_lang: str = "src"
    target_lang: str = "tgt"

    def sizes(self) -> Dict[str, int]:
        """Sentence pairs by split; a split of none has no files."""
        sizes = {"train": self.train, "valid": self.valid, "test": self.test, "noisy": self.noise}
        return {split: size for split, size in sizes.items() if size}

    def files(self, split: str) -> List[str]:
        third = "labels" if split == "noisy" else "align"
        return [f"{split}.{suffix}" for suffix in (self.source_lang, self.target_lang, third)]


def split_of(source: List[str]) -> str:
    """The only split a sentence may be in: a matter of its words alone, so that no two splits share one."""
    return BUCKETS[zlib.crc32(" ".join(source).encode()) % len(BUCKETS)]


def rows(options: Options, grammar: Grammar) -> Iterator[Tuple[str, Tuple[str, str, str]]]:
    """(split, the lines of its three files), until every split has its size.

    All come from one stream, so a split's first sentences do not depend on any size asked for.
    """
    random, chance = Random(f"sentences {options.seed}"), Random(f"noise {options.seed}")
    missing = options.sizes()
    noise_labels = labels(options.noise, chance)
    other: Optional[Sentence] = None  # the noisy split's last sentence
    while any(missing.values()):
        pair = grammar.sentence(random)
        split = split_of(pair.source)
        if not missing.get(split):
            continue
        target, third = pair.target, " ".join(f"{i}-{j}" for i, j in pair.links)
        if split == "noisy":
            last, other = other, pair
            if last is None or last.target == pair.target:
                continue
            third = next(noise_labels)
            target = noisy_target(third, pair, last, chance)
        missing[split] -= 1
        yield split, (" ".join(pair.source), " ".join(target), third)


def existing(out: str, options: Options) -> bool:
    """Whether `out` already holds this corpus; InputError if it holds anything that would be overwritten."""
    names = [name for split in options.sizes() for name in options.files(split)]
    description = os.path.join(out, DESCRIPTION)
    old = _description(out)
    if old is None:
        blocking = [name for name in names + [DESCRIPTION] if os.path.lexists(os.path.join(out, name))]
        if blocking:
            path = os.path.join(out, blocking[0])
            raise InputError(f"{path} exists and is no file of a toy corpus: name another directory, or --force")
        return False
    new = {"version": VERSION, **options._asdict()}
    held = {"version": old.get("version"), **old["options"]}
    for name, value in new.items():
        if held.get(name) != value:
            what = f"{name.replace('_', '-')} {held.get(name)}, not {value}"
            raise InputError(f"{description} is of another corpus ({what}): name another directory, or --force")
    for name in names:
        if not os.path.exists(os.path.join(out, name)):
            raise InputError(f"{os.path.join(out, name)} is missing from the corpus there: --force writes it anew")
    return True


def _description(out: str) -> Optional[Dict[str, Any]]:
    """What `corpus.json` holds, if a toy corpus is there."""
    try:
        with open(os.path.join(out, DESCRIPTION), encoding="utf-8") as file:
            old = json.load(file)
        ours = old["generator"] == GENERATOR and isinstance(old["options"], dict) and isinstance(old["files"], dict)
        return old if ours else None
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def write_corpus(out: str, options: Options) -> None:
    """Write the corpus into `out`, replacing a toy corpus that is there."""
    grammar = Grammar(Lexicon(options.lexicon, options.seed), options.max_clauses)
    counts = {name: {"lines": 0, "words": 0} for split in options.sizes() for name in options.files(split)}
    old = _description(out)
    with _all_or_nothing(out, list(counts) + [DESCRIPTION], list(old["files"]) if old else []) as partial:
        with ExitStack() as stack:
            files = {
                name: stack.enter_context(open(os.path.join(partial, name), "w", encoding="utf-8", newline="\n"))
                for name in counts
            }
            for split, lines in progress(rows(options, grammar), "sentence pairs", sum(options.sizes().values())):
                for name, line in zip(options.files(split), lines):
                    files[name].write(line + "\n")
                    counts[name]["lines"] += 1
                    counts[name]["words"] += line.count(" ") + 1
        description = {
            "generator": GENERATOR,
            "version": VERSION,
            "about": "Two invented languages, made by rule. Line n of a split's files is one sentence pair; .align has "
            "its links i-j (source word, target word, from 0), all sure; .labels says what is wrong with a noisy pair.",
            "options": options._asdict(),
            "files": counts,
        }
        with open(os.path.join(partial, DESCRIPTION), "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(description, indent=2) + "\n")


@contextmanager
def _all_or_nothing(out: str, names: List[str], stale: List[str]) -> Iterator[str]:
    """A directory to write `names` into; they move to `out` when all are done, and `stale` files of it go."""
    created = not os.path.isdir(out)
    os.makedirs(out, exist_ok=True)
    partial = tempfile.mkdtemp(prefix=".toy-corpus-", dir=out)
    moved: List[str] = []
    try:
        yield partial
        # corpus.json goes first and comes last: with it there, the corpus is whole
        for name in [DESCRIPTION] + [name for name in stale if os.path.basename(name) == name]:
            if os.path.exists(os.path.join(out, name)):
                os.remove(os.path.join(out, name))
        for name in names:
            os.replace(os.path.join(partial, name), os.path.join(out, name))
            moved.append(name)
    except BaseException:
        for name in moved:
            os.remove(os.path.join(out, name))
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if created and not os.listdir(out):
            os.rmdir(out)
