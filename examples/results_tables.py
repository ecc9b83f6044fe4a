"""The tables of RESULTS.md: their titles and columns. The numbers of a run have the same names in table.py."""

import os

from results_file import Table

# The length of a trial. The rows of trials stay in the table when a run is trained further.
TRIAL_UPDATES = int(os.environ.get("TRIAL_UPDATES") or 400)

ATTENTION_NUMBERS = (
    "encoder sparsity %", "decoder sparsity %", "cross sparsity %", "cross null %", "shuffled null %",
    "cross diversity", "AUROC",
)  # fmt: skip
ALIGNMENT_NUMBERS = ("AoL normal", "AoL shifted", "AoH normal", "AoH shifted")

_RUN = ("set", "updates", "attention", "setting")
SCORES = Table(
    "scores", 4,
    (*_RUN, "seeds", "BLEU", "range", "difference", "tokenised BLEU", "test, bits per token",
     "validation, bits per token"),
    "Scores: mean over seeds",
)  # fmt: skip
SEEDS = Table(
    "seeds", 5,
    (*_RUN, "seed", "BLEU", "95 %", "p", "tokenised BLEU", "test, bits per token", "validation, bits per token"),
    "Scores: seed by seed",
)  # fmt: skip
ATTENTION = Table(
    "attention", 4,
    (*_RUN, "seeds", "encoder zeros %", "decoder zeros %", "cross zeros %", "cross null %", "shuffled null %",
     "diversity", "AUROC"),
    "Attention: mean over seeds",
)  # fmt: skip
ALIGNMENT = Table(
    "alignment", 4,
    (*_RUN, "seeds", *ALIGNMENT_NUMBERS, "best row, held out", "which (per seed)"),
    "Word alignment: AER, mean over seeds",
)  # fmt: skip
ALIGNMENT_BY_NORMS = Table(
    "alignment by norms", 4,
    (*_RUN, "seeds", "best row by weights, held out", "best row by norms, held out", "which, by norms (per seed)"),
    "Word alignment by norms: AER, mean over seeds",
)  # fmt: skip
ALIGNERS = Table(
    "aligners", 2,
    ("set", "aligner", "AER source to target", "AER target to source", "AER of both"),
    "Word aligners on the same text",
)  # fmt: skip
TRIALS = Table(
    "trials", 5,
    ("set", "attention", "setting", "seed", "updates", "as variables and flags of `train.sh`",
     "validation, bits per token"),
    "Trials",
)  # fmt: skip
RUNS = Table(
    "runs", 5,
    (*_RUN, "seed", "minutes", "variables", "versions", "signature"),
    "Runs",
)  # fmt: skip


def versions() -> str:
    """What a run was made with."""
    import fairseq
    import torch

    import fairseq_rela

    return f"torch {torch.__version__}, fairseq {fairseq.__version__}, fairseq-rela {fairseq_rela.__version__}"
