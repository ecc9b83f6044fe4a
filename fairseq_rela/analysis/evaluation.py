"""How well scores of sentence pairs tell true pairs from wrong ones, beside simple baselines."""

from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from fairseq_rela.analysis.confidence import Penalties, pair_penalties
from fairseq_rela.analysis.filtering import Features, Term, auroc, auroc_interval, combined_score, pair_score, selection
from fairseq_rela.analysis.pair_features import (
    CLEAN,
    Pairs,
    attention_entropy,
    has_entropy,
    is_dump,
    model_scores,
    pair_labels,
    pairs_of,
)
from fairseq_rela.errors import InputError

UNSELECTED = [Term("null", None, None, 1, 0.0, 1.0)]  # the mean null rate


class PairFiles(NamedTuple):
    """The files with what is known about some sentence pairs."""

    pairs: str  # a dump, or a file of statistics
    scores: Optional[str] = None  # the model's score per token
    softmax: Optional[str] = None  # a softmax model's dump


class PairSet(NamedTuple):
    """The true pairs, or the wrong ones."""

    pairs: Pairs
    name: str  # what such a pair is called in messages
    files: PairFiles
    labels: Optional[np.ndarray] = None  # (N,) of str; None if the files have pairs of one label only

    @property
    def label_counts(self) -> Dict[str, int]:
        """How many pairs have each label, in alphabetical order; empty without labels."""
        if self.labels is None:
            return {}
        labels, counts = np.unique(self.labels, return_counts=True)
        return dict(zip(labels.tolist(), counts.tolist()))


def shuffled_sets(true_files: PairFiles, shuffled_files: PairFiles) -> Tuple[PairSet, PairSet]:
    """True pairs and shuffled ones, from files of their own."""
    true, shuffled = pairs_of(true_files.pairs), pairs_of(shuffled_files.pairs)
    if (true.mass is None) != (shuffled.mass is None):
        raise InputError(f"{true_files.pairs} and {shuffled_files.pairs}: give two dumps or two files of statistics")
    if true.layers != shuffled.layers or true.null.shape[1:] != shuffled.null.shape[1:]:
        raise InputError(
            f"{shuffled_files.pairs}: of another model than {true_files.pairs}: their layers or heads differ"
        )
    return PairSet(true, "true", true_files), PairSet(shuffled, "shuffled", shuffled_files)


def labelled_sets(files: PairFiles, labels_path: str) -> Tuple[PairSet, PairSet, int]:
    """(true pairs, wrong pairs, number of labels without a pair), from one set of files and a file of labels."""
    labels_by_id, pairs = pair_labels(labels_path), pairs_of(files.pairs)
    last = int(pairs.ids.max())
    if last >= len(labels_by_id):
        raise InputError(
            f"{labels_path}: has {len(labels_by_id)} lines, but {files.pairs} has pair {last}: "
            f"{last + 1} lines are needed, one label for each pair from 0"
        )
    labels = labels_by_id[pairs.ids]
    clean = labels == CLEAN
    if not clean.any():
        examples = ", ".join(sorted(set(labels))[:5])[:80]  # only some, because this may not be a file of labels
        raise InputError(
            f"{labels_path}: no pair of {files.pairs} is {CLEAN}, but {examples}; true pairs have that label"
        )
    if clean.all():
        raise InputError(
            f"{labels_path}: all {len(labels)} pairs of {files.pairs} are {CLEAN}; wrong pairs, with other labels, "
            f"are needed too"
        )
    true = PairSet(pairs.where(clean), CLEAN, files, labels[clean])
    wrong = PairSet(pairs.where(~clean), "wrong", files, labels[~clean])
    return true, wrong, len(labels_by_id) - len(labels)


class Scores(NamedTuple):
    """One score of all pairs. Its sign is such that worse pairs should have higher scores."""

    name: str
    true: np.ndarray  # (N,)
    wrong: np.ndarray  # (M,)


class Separation(NamedTuple):
    """How well a score tells wrong from true pairs: AUROC and its 95 % bootstrap interval."""

    score: str
    auroc: float
    low: float
    high: float


def separation(name: str, true: np.ndarray, wrong: np.ndarray, seed: int) -> Separation:
    return Separation(name, auroc(true, wrong), *auroc_interval(true, wrong, seed=seed))


def separations(scores: List[Scores], seed: int, inside: Union[slice, np.ndarray] = slice(None)) -> List[Separation]:
    """How well each score separates true pairs from all wrong ones, or from those where `inside`, (M,), is true."""
    return [separation(each.name, each.true, each.wrong[inside], seed) for each in scores]


def pair_scores(true: PairSet, wrong: PairSet) -> List[Scores]:
    """The null rate and every baseline that there are files for."""
    sets = true, wrong
    scores = [
        Scores("null rate of cross attention", *(pair_score(each.pairs.null) for each in sets)),
        Scores("baseline: length ratio", *(each.pairs.length_ratio for each in sets)),
    ]
    model_paths = [each.files.scores for each in sets]
    scores += _baseline("scores", "baseline: model score per token", model_scores, -1, sets, model_paths)
    entropy_paths = [each.files.softmax for each in sets]
    if not any(entropy_paths) and all(has_entropy(each.files.pairs) for each in sets):
        entropy_paths = [each.files.pairs for each in sets]
    scores += _baseline("softmax", "baseline: attention entropy", attention_entropy, 1, sets, entropy_paths)
    return scores + _confidence_scores(sets)


def _confidence_scores(sets: Tuple[PairSet, PairSet]) -> List[Scores]:
    """The penalties of Rikters and Fishel, of the pairs' own attention and of a softmax model's; they need dumps."""
    scores: List[Scores] = []
    own: List[Optional[str]] = [each.files.pairs for each in sets]
    softmax = [each.files.softmax for each in sets]
    for model, paths in (("", own), (" (softmax)", softmax)):
        if all(path and is_dump(path) for path in paths):
            for name in Penalties._fields:
                title = f"baseline: {name.replace('_', ' ')}{model}"
                scores += _baseline("softmax", title, partial(_penalty, name), 1, sets, paths)
    return scores


def _penalty(name: str, path: str) -> Dict[int, float]:
    """One of the penalties of every pair of a dump, by id."""
    return {number: getattr(of_pair, name) for number, of_pair in pair_penalties(path).items()}


def _baseline(
    option: str,
    name: str,
    read: Callable[[str], Dict[int, float]],
    sign: int,
    sets: Tuple[PairSet, PairSet],
    paths: List[Optional[str]],
) -> List[Scores]:
    """A score that is read from a file for each set; nothing if there are no files."""
    given = [path for path in paths if path]
    if not given:
        return []
    if len(given) < len(sets):
        raise InputError(f"give --{option} and --shuffled-{option} together: for the true pairs and the shuffled ones")
    by_path = {path: read(path) for path in dict.fromkeys(given)}  # both sets may be in one file, which is read once
    values = [sign * _values_of_pairs(by_path[path], each.pairs, path) for path, each in zip(given, sets)]
    return [Scores(name, *values)]


def _values_of_pairs(values: Dict[int, float], pairs: Pairs, path: str) -> np.ndarray:
    """(N,): the value of each pair."""
    missing = next((number for number in pairs.ids.tolist() if number not in values), None)
    if missing is not None:
        raise InputError(f"{path}: has no value for pair {missing}")
    return np.array([values[number] for number in pairs.ids.tolist()])


class Evaluation(NamedTuple):
    """How well every score separates true pairs from all wrong ones, and from the wrong ones of each label."""

    results: List[Separation]
    by_label: Dict[str, List[Separation]]  # empty without labels

    def to_json(self) -> Dict[str, Any]:
        content: Dict[str, Any] = {"evaluation": [result._asdict() for result in self.results]}
        if self.by_label:
            content["by_label"] = {
                label: [each._asdict() for each in column] for label, column in self.by_label.items()
            }
        return content


def evaluate(true: PairSet, wrong: PairSet, seed: int) -> Evaluation:
    """Measure every score that there are files for. `seed` is that of the bootstrap."""
    scores = pair_scores(true, wrong)
    by_label = {}
    if wrong.labels is not None:
        by_label = {label: separations(scores, seed, wrong.labels == label) for label in wrong.label_counts}
    return Evaluation(separations(scores, seed), by_label)


class SelectionStep(NamedTuple):
    """A combination of terms, its AUROC on the pairs it was chosen on, and its separation of the other pairs."""

    terms: List[Term]
    name: str
    development: float
    held_out: Separation

    def to_json(self) -> Dict[str, Any]:
        rates = {field: value for field, value in self.held_out._asdict().items() if field != "score"}
        return {"terms": self.name, "development": self.development, **rates}


def selection_steps(true: PairSet, wrong: PairSet, seed: int) -> List[SelectionStep]:
    """Choose terms on the even pairs and score them on the odd ones. Step 0 is the mean null rate, without a choice."""
    even_true, even_wrong = _half(true, 0), _half(wrong, 0)
    odd_true, odd_wrong = _half(true, 1), _half(wrong, 1)
    steps = []
    for terms in [UNSELECTED, *selection(even_true, even_wrong)]:
        name = " + ".join(map(str, terms)) if terms != UNSELECTED else "mean null rate (nothing chosen)"
        development = auroc(combined_score(terms, *even_true), combined_score(terms, *even_wrong))
        held_out = separation("", combined_score(terms, *odd_true), combined_score(terms, *odd_wrong), seed)
        steps.append(SelectionStep(terms, name, development, held_out))
    return steps


def _half(pair_set: PairSet, parity: int) -> Features:
    """The features of the pairs with even (0) or odd (1) ids."""
    half = pair_set.pairs.where(pair_set.pairs.ids % 2 == parity)
    if not len(half.ids):
        name = ("even", "odd")[parity]
        raise InputError(f"{pair_set.files.pairs}: has no {pair_set.name} pair with an {name} id; --select needs both")
    return half.null, half.mass
