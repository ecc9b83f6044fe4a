"""Decoding: beam search by a newly initialised model, against stock fairseq's `transformer`.

The input is one sentence for each of --lengths. Every model writes exactly --output-length tokens. `limit` is the stock
model without attention. For speed by length, give
--lengths 10 20 40 80 160 320 --plot speed.png.
"""

import argparse
from typing import Callable, Dict, Iterator, List, Tuple

import torch
from fairseq.models import BaseFairseqModel
from fairseq.sequence_generator import SequenceGenerator

from fairseq_rela.bench import models
from fairseq_rela.bench.hardware import DTYPES
from fairseq_rela.bench.timing import Result, compare


def add_arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser)
    parser.add_argument("--lengths", type=int, nargs="+", default=[25, 500], metavar="N")
    parser.add_argument("--output-length", type=int, default=50, metavar="N", help="tokens (default: 50)")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--entmax", action="store_true", help="compare with entmax15 and sparsemax too")
    models.add_against(parser)


def search(model: BaseFairseqModel, batch: dict, args: argparse.Namespace, words) -> Callable[[], None]:
    """A function that translates the batch once."""
    model.eval()
    model.make_generation_fast_(beamable_mm_beam_size=None, need_attn=False)  # as fairseq-generate does
    generator = SequenceGenerator(
        [model], words, beam_size=args.beam, max_len_a=0, max_len_b=args.output_length, min_len=args.output_length
    )
    sample = {"net_input": {name: batch[name] for name in ("src_tokens", "src_lengths")}}

    def run() -> None:
        with torch.no_grad():
            generator.generate([model], sample)

    return run


def results(args: argparse.Namespace, device: torch.device) -> Iterator[List[Result]]:
    words = models.dictionary(args.vocabulary)
    others = (*(("entmax15", "sparsemax") if args.entmax else ()), *args.against)
    contenders = {"ours": args.attention, "stock": "stock", "limit": "limit", **{name: name for name in others}}
    built = {name: models.build(a, args.size, words).to(device, DTYPES[args.dtype]) for name, a in contenders.items()}
    for length in args.lengths:
        batch, _ = models.sentences(1, length, words, device)
        runs = {name: search(model, batch, args, words) for name, model in built.items()}
        cases = {f"decode/{length}": "stock", **{f"decode/{length}/{name}": name for name in others}}
        yield compare(cases, runs, args.repeats, device)


def steps(args: argparse.Namespace) -> int:
    return len(args.lengths)


def notes(args: argparse.Namespace, measured: List[Result]) -> List[str]:
    return [
        f"{r.case}: {args.output_length / r.ours:.1f} tokens a second, stock {args.output_length / r.baseline:.1f}"
        for r in measured
        if r.case.count("/") == 1
    ]


def draw(args: argparse.Namespace) -> Callable:
    """Tokens per second by source length, one line per model. The paper's Figure 2 is the speed relative to softmax."""

    def lines(axes, measured: List[Result]) -> None:
        speeds: Dict[str, List[Tuple[int, float]]] = {}
        for r in measured:
            length, _, name = r.case.partition("/")[2].partition("/")
            if not name:
                speeds.setdefault(args.attention, []).append((int(length), args.output_length / r.ours))
            speeds.setdefault(name or "stock transformer", []).append((int(length), args.output_length / r.baseline))
        for name, points in speeds.items():
            axes.plot(*zip(*sorted(points)), marker="o", label=name)
        axes.set_xlabel("source tokens")
        axes.set_ylabel("tokens a second")
        axes.set_ylim(bottom=0)
        axes.legend()

    return lines
