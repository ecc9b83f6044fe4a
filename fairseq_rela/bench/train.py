"""Training: forward, backward and optimizer step of a whole model, against stock fairseq's `transformer`.

A batch has random sentences of about --lengths tokens, together --tokens. `limit` is the stock model without
attention. The numbers of parameters are printed too (paper, Table 2). With --rela-threshold or
--rela-target-sparsity, the same model without a threshold is another baseline.
"""

import argparse
from typing import Callable, Iterator, List

import torch
import torch.nn.functional as F

from fairseq_rela.bench import models
from fairseq_rela.bench.hardware import DTYPES
from fairseq_rela.bench.timing import Result, compare
from fairseq_rela.models.threshold_flags import THRESHOLD_FLAGS

ENTMAX = ("entmax15", "sparsemax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser)
    parser.add_argument("--lengths", type=int, nargs="+", default=[25, 512, 2048], metavar="N")
    parser.add_argument(
        "--tokens", type=int, default=1024, help="tokens in a batch, at least one sentence (default: 1024)"
    )
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument(
        "--entmax-lengths",
        type=int,
        nargs="*",
        default=[25],
        metavar="N",
        help="compare with entmax too at these lengths (default: 25)",
    )
    models.add_against(parser)
    for name, (metavar, text) in THRESHOLD_FLAGS.items():
        parser.add_argument("--" + name.replace("_", "-"), metavar=metavar, help=f"as in fairseq-train: {text}")


def step(model: torch.nn.Module, batch: dict, target: torch.Tensor, pad: int) -> Callable[[], None]:
    """A function that trains the model on the batch once."""
    model.train()
    full = next(model.parameters()).dtype == torch.float32
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, eps=1e-8 if full else 1e-4)  # 1e-8 is 0 in float16

    def run() -> None:
        optimizer.zero_grad()
        logits = model(**batch)[0]
        F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=pad).backward()
        optimizer.step()

    return run


def results(args: argparse.Namespace, device: torch.device) -> Iterator[List[Result]]:
    words = models.dictionary(args.vocabulary)
    for length in args.lengths:
        entmax = (*(ENTMAX if length in args.entmax_lengths else ()), *args.against)
        batch, target = models.sentences(max(1, args.tokens // length), length, words, device)
        threshold = {name: getattr(args, name) for name in THRESHOLD_FLAGS if getattr(args, name) is not None}
        contenders = {"ours": args.attention, "stock": "stock", "limit": "limit", **{name: name for name in entmax}}
        others = list(entmax)
        if threshold:
            contenders["no threshold"] = args.attention
            others.append("no threshold")
        runs = {}
        for name, attention in contenders.items():
            flags = threshold if name == "ours" else {}
            model = models.build(attention, args.size, words, dropout=args.dropout, **flags).to(
                device, DTYPES[args.dtype]
            )
            runs[name] = step(model, batch, target, words.pad())
        cases = {f"train/{length}": "stock", **{f"train/{length}/{name}": name for name in others}}
        yield compare(cases, runs, args.repeats, device)


def steps(args: argparse.Namespace) -> int:
    return len(args.lengths)


def notes(args: argparse.Namespace, measured: List[Result]) -> List[str]:
    words = models.dictionary(args.vocabulary)
    ours, stock = (models.parameters(models.build(name, args.size, words)) for name in (args.attention, "stock"))
    return [f"parameters: ours {ours:,}, stock {stock:,} ({ours - stock:+,})"]
