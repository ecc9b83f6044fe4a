"""A checkpoint made on either stack loads on the other, and gives the same numbers there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq_runs import ROOT, corpus, environment, fairseq_generate, fairseq_train, tagged

from fairseq_rela.models.layers import FUSED_COPIES

pytestmark = pytest.mark.slow

HERE_IS_LEGACY = sys.version_info < (3, 11)
VARIABLE, DEFAULT = ("RELA_VENV_MODERN", ".venv") if HERE_IS_LEGACY else ("RELA_VENV_LEGACY", ".venv-legacy")
OTHER = Path(os.environ.get(VARIABLE) or ROOT / DEFAULT).resolve() / "bin" / "python"

# run there: train (if asked) and translate, with its own fairseq and torch
THERE = """
import json, sys
sys.path[:0] = [{tests!r}]
import fairseq_rela.models, fairseq_rela.tasks
from fairseq_runs import fairseq_generate, fairseq_train, tagged
data, save_dir, train = sys.argv[1:]
if train == "train":
    fairseq_train(data, save_dir, "--max-update", 20)
lines = fairseq_generate(data, save_dir + "/checkpoint_last.pt", "--score-reference")
print("SCORES", json.dumps({{i: h[0] for i, h in tagged(lines, "H").items()}}))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("stacks"), "--train", 100, "--valid", 10, "--test", 8)


def there(data, save_dir, train):
    code = THERE.format(tests=str(ROOT / "tests"))
    env = {**environment(), "PATH": os.environ["PATH"]}
    words = [str(OTHER), "-c", code, str(data), str(save_dir), "train" if train else "use"]
    done = subprocess.run(words, env=env, cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SCORES ")]
    return {int(i): float(score) for i, score in json.loads(line[7:]).items()}


def here(data, save_dir):
    lines = fairseq_generate(data, save_dir / "checkpoint_last.pt", "--score-reference")
    return {i: float(h[0]) for i, h in tagged(lines, "H").items()}


@pytest.mark.skipif(not OTHER.exists(), reason=f"the other stack's environment is not there ({OTHER})")
@pytest.mark.parametrize("made", ["here", "there"])
def test_a_checkpoint_scores_the_same_on_the_other_stack(data, tmp_path, made):
    if made == "here":
        fairseq_train(data, tmp_path, "--max-update", 20)
    theirs = there(data, tmp_path, train=made == "there")
    ours = here(data, tmp_path)
    assert len(ours) == 8 and ours == pytest.approx(theirs, abs=1e-3)


def test_a_stock_softmax_checkpoint_with_fused_copies_loads(build, batch):
    """fairseq 0.12.2 keeps every parameter of an encoder layer twice; the copies are dropped."""
    model, state = build("transformer_softmax").eval(), build("transformer_softmax").state_dict()
    expected = model(**batch)[0]
    for layer in (0, 1):
        for copy in FUSED_COPIES:
            state[f"encoder.layers.{layer}.{copy}"] = torch.zeros(1)
    model.upgrade_state_dict(state)
    model.load_state_dict(state, strict=True)
    assert torch.equal(model(**batch)[0], expected)
