"""Rows of the tables in RESULTS.md, from the files of runs.

python results.py best UPDATES RUN ...                    the runs, lowest validation loss after so many updates first
python results.py trial FILE DATASET UPDATES SETTING ATTENTION,SEED=RUN ...     rows of `trials`
python results.py record FILE DATASET UPDATES SETTING REFERENCE ATTENTION,SEED=RUN ...
                                                          rows of the other tables; the first attention is the
                                                          baseline
python results.py aligner FILE DATASET NAME GOLD BASE FORWARD REVERSE           a row of `aligners`

RUN is a run's directory; RUN/atN has its results at update N. A run that has not come to UPDATES is a trial: its
validation loss goes to `trials`, and nothing else is written about it.
"""

import os
import sys
from typing import Dict, List, NamedTuple, Optional, Sequence

import bootstrap
import recipe
import results_tables as tables
import run_files
import table
from recorded_settings import recorded
from results_file import put, remove, rows


class Run(NamedTuple):
    """One training of an attention, and the directory of its results."""

    attention: str
    seed: str
    results: str

    @property
    def directory(self) -> str:
        """Where the training is: RUN, also if the results are in RUN/atN."""
        parent, name = os.path.split(self.results)
        return parent if name.startswith("at") and name[2:].isdigit() else self.results

    def reached(self, updates: int) -> bool:
        """Whether its results are those of the average up to this update."""
        average = recorded(os.path.join(self.results, "average.settings")) or []
        return f"UPDATES={updates}" in average and bool(table.scores(self.results))


class Budget(NamedTuple):
    """What a table is about: every run of it has the same data set, number of updates and setting."""

    file: str
    dataset: str
    updates: int
    setting: str
    baseline: str  # the attention that others are compared with

    def start(self, attention: str) -> List[object]:
        """The first cells of a row."""
        return [self.dataset, self.updates, attention, self.setting]


def parse(argument: str) -> Run:
    """ATTENTION,SEED=RUN"""
    name, _, directory = argument.partition("=")
    attention, _, seed = name.partition(",")
    return Run(attention, seed, directory.rstrip("/"))


def number(value: Optional[float], digits: int = 1) -> str:
    return table.NOTHING if value is None else f"{value:.{digits}f}"


def mean(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The least and the greatest value."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}" if len(values) > 1 else table.NOTHING


def quality(run: Run) -> Dict[str, float]:
    """BLEU as sacrebleu computes it by default, or of tokens for text that is tokenised already; and of tokens."""
    scores = {name: score["score"] for name, score in table.scores(run.results).items()}
    tokens = scores.get("tokenised BLEU")
    return {"BLEU": scores.get("BLEU", tokens), "tokenised BLEU": tokens}


def bits_of_test(run: Run) -> Optional[float]:
    score = run_files.reference_score(os.path.join(run.results, "dump", "test.log"))
    return None if score is None else -score


# --- one table after the other


def put_trial(budget: Budget, run: Run) -> None:
    loss = number(run_files.validation(run.directory, budget.updates), 3)
    variables = f"`{run_files.variables(run.directory)}`"
    start = [budget.dataset, run.attention, budget.setting, run.seed, budget.updates]
    put(budget.file, tables.TRIALS, [*start, variables, loss])


def remove_trials(budget: Budget, run: Run) -> None:
    """Remove the rows of a run from the times when it had fewer updates; those of the trials stay."""
    for updates, _ in run_files.validation_curve(run.directory):
        if updates != tables.TRIAL_UPDATES:
            remove(budget.file, tables.TRIALS, [budget.dataset, run.attention, budget.setting, run.seed, updates])


def put_runs(budget: Budget, runs: Sequence[Run]) -> None:
    versions = tables.versions()
    for run in runs:
        signature = next(iter(table.scores(run.results).values()))["signature"]
        cells = [*budget.start(run.attention), run.seed, number(run_files.minutes(run.directory, budget.updates), 0)]
        put(budget.file, tables.RUNS, [*cells, f"`{run_files.variables(run.directory)}`", versions, f"`{signature}`"])


def put_seeds(budget: Budget, reference: str, runs: Sequence[Run]) -> None:
    """Each run, compared with the baseline's run of the same seed."""
    for seed in dict.fromkeys(run.seed for run in runs):
        same = [run for run in runs if run.seed == seed]
        directories = [run.results for run in same]
        if same[0].attention == budget.baseline:
            compared = bootstrap.compare(reference, directories)
        else:
            compared = bootstrap.scores(directories)
        for run, score in zip(same, compared):
            interval = table.NOTHING if score.interval is None else f"± {score.interval:.2f}"
            cells = [*budget.start(run.attention), seed, number(quality(run)["BLEU"], 2), interval, number(score.p, 3)]
            cells += [number(quality(run)["tokenised BLEU"], 2), number(bits_of_test(run), 3)]
            put(budget.file, tables.SEEDS, [*cells, number(run_files.validation(run.directory, budget.updates), 3)])


def recorded_seeds(budget: Budget) -> Dict[str, Dict[str, List[Optional[float]]]]:
    """attention → seed → BLEU, tokenised BLEU, bits of the test and of the validation set, from the table of seeds.

    The file is read because the seeds of an attention may have been trained on several machines.
    """
    found: Dict[str, Dict[str, List[Optional[float]]]] = {}
    for cells in rows(budget.file, tables.SEEDS):
        attention, seed = cells[2], cells[4]
        if cells[:4] == list(map(str, budget.start(attention))):
            scores = [None if cell == table.NOTHING else float(cell) for cell in (cells[5], *cells[8:])]
            found.setdefault(attention, {})[seed] = scores
    return {attention: dict(sorted(seeds.items())) for attention, seeds in found.items()}


def put_means(budget: Budget) -> None:
    """One row of the table of scores for each attention. It is compared with the baseline over the seeds of both."""
    recorded_runs = recorded_seeds(budget)
    baseline = recorded_runs.get(budget.baseline, {})
    for attention, seeds in recorded_runs.items():
        bleu, *others = zip(*seeds.values())
        both = [(scores[0], baseline[seed][0]) for seed, scores in seeds.items() if seed in baseline]
        difference = table.NOTHING
        if both and attention != budget.baseline:
            difference = f"{sum(ours - theirs for ours, theirs in both) / len(both):+.2f}"
        means = [number(mean(values), digits) for values, digits in zip(others, (2, 3, 3))]
        cells = [" ".join(seeds), number(mean(bleu), 2), spread(bleu), difference, *means]
        put(budget.file, tables.SCORES, [*budget.start(attention), *cells])


def put_all_analyses(budget: Budget, runs: Sequence[Run]) -> None:
    """One row per attention in the tables of attention and of word alignment.

    A row that is the mean over more seeds than there are runs here stays as it is.
    """
    for attention in dict.fromkeys(run.attention for run in runs):
        seeds = [run for run in runs if run.attention == attention]
        start = budget.start(attention)
        there = [
            cells[4].split() for cells in rows(budget.file, tables.ATTENTION) if cells[:4] == list(map(str, start))
        ]
        if not there or len(there[0]) <= len(seeds):
            put_analyses(budget.file, [*start, " ".join(run.seed for run in seeds)], seeds)


def put_analyses(path: str, start: List[object], seeds: Sequence[Run]) -> None:
    numbers = [table.run_numbers(run.results) for run in seeds]

    def average(column: str) -> str:
        return number(mean([run.get(column) for run in numbers]), table.digits(column))

    if any("cross sparsity %" in run for run in numbers):
        put(path, tables.ATTENTION, [*start, *map(average, tables.ATTENTION_NUMBERS)])
    if any("AoL normal" in run for run in numbers):
        best_rows = [table.read_json(run.results, "best_alignment.json") for run in seeds]
        rate = mean([100 * row["aer"] for row in best_rows if row])
        names = "; ".join(row["name"] for row in best_rows if row) or table.NOTHING
        put(path, tables.ALIGNMENT, [*start, *map(average, tables.ALIGNMENT_NUMBERS), number(rate), names])
        by_norms = [row["norms"] for row in best_rows if row and "norms" in row]
        if best_rows and len(by_norms) == len(best_rows):
            names = "; ".join(row["name"] for row in by_norms)
            rates = number(rate), number(mean([100 * row["aer"] for row in by_norms]))
            put(path, tables.ALIGNMENT_BY_NORMS, [*start, *rates, names])


# --- commands


def best(updates: str, *runs: str) -> None:
    print("\n".join(sorted(runs, key=lambda run: run_files.validation(run, int(updates)))))


def trial(path: str, dataset: str, updates: str, setting: str, *arguments: str) -> None:
    for run in map(parse, arguments):
        put_trial(Budget(path, dataset, int(updates), setting, run.attention), run)


def record(path: str, dataset: str, updates: str, setting: str, reference: str, *arguments: str) -> None:
    runs = list(map(parse, arguments))
    budget = Budget(path, dataset, int(updates), setting, runs[0].attention)
    finished = [run for run in runs if run.reached(budget.updates)]
    for run in runs:
        updates_now = run_files.updates_reached(run.directory)
        if run in finished or 0 < updates_now < budget.updates:
            remove_trials(budget, run)
        if run not in finished and 0 < updates_now < budget.updates:
            put_trial(budget._replace(updates=updates_now), run)
    if finished:
        put_runs(budget, finished)
        put_seeds(budget, reference, finished)
        put_means(budget)
        put_all_analyses(budget, finished)


def aligner(path: str, dataset: str, name: str, gold: str, base: str, *directions: str) -> None:
    """Both directions of a word aligner, and both together by grow-diag-final-and."""
    from fairseq_rela.analysis.alignment import alignment_error_rate
    from fairseq_rela.analysis.links import read_links
    from fairseq_rela.analysis.symmetrization import grow_diag_final_and

    gold_links = read_links(gold, int(base))
    forward, reverse = ([line.sure for line in read_links(links)][: len(gold_links)] for links in directions)
    both = list(map(grow_diag_final_and, forward, reverse))
    rates = [alignment_error_rate(links, gold_links) for links in (forward, reverse, both)]
    put(path, tables.ALIGNERS, [dataset, name, *(number(100 * rate) for rate in rates)])


if __name__ == "__main__":
    commands = {"best": best, "trial": trial, "record": record, "aligner": aligner}
    if len(sys.argv) < 4 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    try:
        commands[sys.argv[1]](*sys.argv[2:])
    except recipe.RecipeError as error:
        recipe.fail(error)
