"""How long a training step of each model takes on the data set's own training pairs (Table 2).

python training_step.py DATA OUTPUT.json NAME=CHECKPOINT ... [--tokens 25000] [--max-tokens 6250] [--steps 500]
                        [--runs 3] [--attention-dropout 0.1]

A step is the forward and backward pass over about --tokens target tokens, in batches of at most --max-tokens, and one
step of Adam. Every model makes a step before the next step begins. The models start from their trained weights, which
does not change the time.
"""

import argparse
import json
from typing import Any, Callable, Dict, List, Tuple

import recipe
import trained_models

from fairseq_rela.progress import progress


def step_batches(dataset: Any, tokens: int, max_tokens: int, steps: int) -> Tuple[List[List[Any]], int]:
    """For each step its batches, as fairseq collates them, and the mean number of target tokens of a step."""
    import numpy as np

    order = np.random.default_rng(1).permutation(len(dataset))
    step, batch, all_steps, total, position = [], [], [], 0, 0
    while len(all_steps) < steps:
        in_step = 0
        while in_step < tokens:
            pair = dataset[int(order[position % len(order)])]
            position += 1
            length = len(pair["target"])
            if batch and (len(batch) + 1) * max(len(p["target"]) for p in [*batch, pair]) > max_tokens:
                step.append(dataset.collater(batch))
                batch = []
            batch.append(pair)
            in_step += length
        step.append(dataset.collater(batch))
        all_steps.append(step)
        step, batch, total = [], [], total + in_step
    return all_steps, total // steps


def stepper(model: Any, padding: int, device: Any) -> Callable[[List[Any]], None]:
    """A function that trains the model on the batches of one step."""
    import torch
    import torch.nn.functional as F
    from fairseq import utils

    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-9, betas=(0.9, 0.98))

    def run(batches: List[Any]) -> None:
        optimizer.zero_grad()
        for batch in batches:
            if device.type == "cuda":
                batch = utils.move_to_cuda(batch, device)
            logits = model(**batch["net_input"])[0]
            loss = F.cross_entropy(
                logits.flatten(0, 1).float(), batch["target"].flatten(), ignore_index=padding, label_smoothing=0.1
            )
            loss.backward()
        optimizer.step()

    return run


def measure(args: argparse.Namespace) -> Dict[str, Any]:
    import torch

    from fairseq_rela.bench.hardware import device_name, seconds, wait_for

    device, paths = torch.device(args.device), trained_models.named_paths(args.models)
    overrides = {"attention_dropout": args.attention_dropout}
    loaded = {name: trained_models.load(path, args.data, device, **overrides) for name, path in paths.items()}
    task = next(iter(loaded.values())).task
    task.load_dataset("train")
    steps, tokens = step_batches(task.dataset("train"), args.tokens, args.max_tokens, args.steps)
    steppers = {n: stepper(trained.model, task.target_dictionary.pad(), device) for n, trained in loaded.items()}
    for run_step in steppers.values():  # warm up
        run_step(steps[0])
    wait_for(device)
    times: Dict[str, List[float]] = {name: [0.0] * args.runs for name in steppers}
    for run in range(args.runs):
        for batches in progress(steps, f"run {run + 1} of {args.runs}", len(steps)):
            for name, run_step in steppers.items():
                times[name][run] += seconds(lambda: run_step(batches), device)  # noqa: B023
    return {
        "seconds": times,
        "steps": args.steps,
        "target_tokens": tokens,
        "attention_dropout": args.attention_dropout,
        "device": device_name(device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("output")
    parser.add_argument("models", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--tokens", type=int, default=25000, help="target tokens of a step")
    parser.add_argument("--max-tokens", type=int, default=6250, help="target tokens of one batch, with padding")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if min(args.steps, args.runs, args.tokens) < 1:
        recipe.fail("STEPS, RUNS and TOKENS must be at least 1")
    recipe.write_atomically(args.output, json.dumps(measure(args)) + "\n")


if __name__ == "__main__":
    main()
