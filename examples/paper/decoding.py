"""How long trained models take to translate each sentence of the test set at batch size 1 (Table 2, Figure 2).

python decoding.py DATA OUTPUT.json NAME=CHECKPOINT ... [--beam 4] [--lenpen 0.6] [--runs 3] [--sentences N]

Every model translates a sentence before the next sentence begins, so that a busy machine slows all of them alike.
OUTPUT has for each model and run the seconds of every sentence, and the sentences' source lengths in pieces.
"""

import argparse
import json
from typing import Any, Callable, Dict, List

import recipe
import trained_models

from fairseq_rela.progress import progress


def evenly(lengths: List[int], count: int) -> List[int]:
    """`count` sentences, spread evenly over those sorted by length; all of them if there are no more."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    if count >= len(order):
        return order
    return [order[i * len(order) // count] for i in range(count)]


def translator(trained: trained_models.Trained, beam: int, lenpen: float, device: Any) -> Callable[[Any], int]:
    """A function that translates the source tokens of one sentence, and says how many tokens it wrote."""
    import torch
    from fairseq.sequence_generator import SequenceGenerator

    model = trained.model.eval()
    model.make_generation_fast_(beamable_mm_beam_size=None, need_attn=False)  # as fairseq-generate does
    generator = SequenceGenerator([model], trained.task.target_dictionary, beam_size=beam, len_penalty=lenpen)

    def translate(source: Any) -> int:
        tokens = source.unsqueeze(0).to(device)
        lengths = torch.tensor([tokens.size(1)], device=device)
        with torch.no_grad():
            hypotheses = generator.generate([model], {"net_input": {"src_tokens": tokens, "src_lengths": lengths}})
        return len(hypotheses[0][0]["tokens"])

    return translate


def measure(args: argparse.Namespace) -> Dict[str, Any]:
    import torch

    from fairseq_rela.bench.hardware import device_name, seconds, wait_for

    device = torch.device(args.device)
    loaded = {n: trained_models.load(p, args.data, device) for n, p in trained_models.named_paths(args.models).items()}
    task = next(iter(loaded.values())).task
    task.load_dataset("test")
    test = task.dataset("test")
    sources = [test[i]["source"] for i in range(len(test))]
    lengths = [len(source) for source in sources]
    chosen = evenly(lengths, args.sentences or len(sources))
    translators = {name: translator(trained, args.beam, args.lenpen, device) for name, trained in loaded.items()}
    for translate in translators.values():  # warm up
        translate(sources[chosen[0]])
    wait_for(device)
    times: Dict[str, List[List[float]]] = {name: [[] for _ in range(args.runs)] for name in translators}
    written = dict.fromkeys(translators, 0)
    for run in range(args.runs):
        for number in progress(chosen, f"run {run + 1} of {args.runs}", len(chosen)):
            for name, translate in translators.items():
                tokens: List[int] = []
                times[name][run].append(seconds(lambda: tokens.append(translate(sources[number])), device))  # noqa: B023
                written[name] += tokens[0] if run == 0 else 0
    return {
        "sentences": [int(number) for number in chosen],
        "source_lengths": [lengths[number] for number in chosen],
        "target_tokens": written,
        "seconds": times,
        "parameters": {name: trained_models.parameters(trained.model) for name, trained in loaded.items()},
        "test_set": len(sources),
        "beam": args.beam,
        "lenpen": args.lenpen,
        "device": device_name(device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("output")
    parser.add_argument("models", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--lenpen", type=float, default=0.6)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=0, help="fewer than all, evenly over the lengths (0: all)")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.runs < 1:
        recipe.fail("RUNS must be at least 1")
    recipe.write_atomically(args.output, json.dumps(measure(args)) + "\n")


if __name__ == "__main__":
    main()
