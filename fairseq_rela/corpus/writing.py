"""Writing the corpus: which sentence belongs to which split, and its files."""

import json
import os
import re
import zlib
from contextlib import ExitStack
from random import Random
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fairseq_rela.atomic import write_directory_atomically
from fairseq_rela.corpus.grammar import Grammar, Sentence
from fairseq_rela.corpus.lexicon import Lexicon
from fairseq_rela.corpus.noise import labels, noisy_target
from fairseq_rela.corpus.options import BUCKETS, SPLITS, Options
from fairseq_rela.errors import InputError
from fairseq_rela.progress import progress

GENERATOR = "fairseq-rela toy-corpus"
VERSION = 1  # of the text; it changes whenever the same options give another corpus
DESCRIPTION = "corpus.json"
_MOST_CHARACTERS = 1_000_000  # of corpus.json
_FILE_NAME = re.compile(rf"({'|'.join(SPLITS)})\.[A-Za-z0-9_]+")  # of a file that a corpus may have


def split_of(source: List[str]) -> str:
    """The split of a sentence. It depends only on the words, so two splits never share a sentence."""
    return BUCKETS[zlib.crc32(" ".join(source).encode()) % len(BUCKETS)]


def rows(options: Options, grammar: Grammar) -> Iterator[Tuple[str, Tuple[str, str, str]]]:
    """(split, the lines of its three files), until every split has its size.

    All sentences come from one stream, so the first sentences of a split do not depend on the sizes.
    """
    random, chance = Random(f"sentences {options.seed}"), Random(f"noise {options.seed}")
    missing = options.sizes()
    noise_labels = labels(options.noise, chance)
    previous: Optional[Sentence] = None  # the last sentence of the noisy split
    while any(missing.values()):
        pair = grammar.sentence(random)
        split = split_of(pair.source)
        if not missing.get(split):
            continue
        target, third = pair.target, " ".join(f"{i}-{j}" for i, j in pair.links)
        if split == "noisy":
            last, previous = previous, pair
            if last is None or last.target == pair.target:
                continue
            third = next(noise_labels)
            target = noisy_target(third, pair, last, chance)
        missing[split] -= 1
        yield split, (" ".join(pair.source), " ".join(target), third)


def existing(out: str, options: Options) -> bool:
    """Whether `out` already has this corpus. InputError if it has a file that would be overwritten."""
    names = [name for split in options.sizes() for name in options.files(split)]
    description = os.path.join(out, DESCRIPTION)
    old = _description(out)
    if old is None:
        blocking = [name for name in names + [DESCRIPTION] if os.path.lexists(os.path.join(out, name))]
        if blocking:
            path = os.path.join(out, blocking[0])
            raise InputError(f"{path} exists and is not a file of a toy corpus: give another directory, or --force")
        return False
    new = {"version": VERSION, **options._asdict()}
    held = {"version": old.get("version"), **old["options"]}
    for name, value in new.items():
        if held.get(name) != value:
            difference = f"{name.replace('_', '-')} {str(held.get(name))[:40]}, not {str(value)[:40]}"
            raise InputError(f"{description} is of another corpus ({difference}): give another directory, or --force")
    for name in names:
        if not os.path.exists(os.path.join(out, name)):
            raise InputError(f"{os.path.join(out, name)} is missing from the corpus there: --force writes it again")
    return True


def _description(out: str) -> Optional[Dict[str, Any]]:
    """The content of `corpus.json`; None if there is no toy corpus."""
    try:
        with open(os.path.join(out, DESCRIPTION), encoding="utf-8") as file:
            old = json.loads(file.read(_MOST_CHARACTERS))
        ours = old["generator"] == GENERATOR and isinstance(old["options"], dict) and isinstance(old["files"], dict)
        return old if ours else None
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_corpus(out: str, options: Options) -> None:
    """Write the corpus into `out` atomically, and replace a toy corpus that is there."""
    grammar = Grammar(Lexicon(options.lexicon, options.seed), options.max_clauses)
    counts = {name: {"lines": 0, "words": 0} for split in options.sizes() for name in options.files(split)}
    old = _description(out)
    obsolete = [name for name in (old["files"] if old else []) if _FILE_NAME.fullmatch(name)]
    with write_directory_atomically(out, last=DESCRIPTION, obsolete=obsolete) as partial:
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
