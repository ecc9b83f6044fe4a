"""The recipes for the tests: small settings, and commands that need not import fairseq anew each time."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMALL = {
    "PIECES": "120", "SIZE": "tiny", "UPDATES": "3", "WARMUP": "2", "SAVE_INTERVAL": "1", "AVERAGE": "2",
    "WORKERS": "1", "MAX_TOKENS": "500", "TOKENS_PER_UPDATE": "1000", "DEVICES": "cpu", "OMP_NUM_THREADS": "1",
    "CHECKSUMS": "none", "MIN_WORDS": "1", "MAX_WORDS": "99", "MAX_RATIO": "99",
}  # fmt: skip
OWN = "TAG SEED SEEDS ROWS ATTENTIONS SETTINGS OUT DATA_DIR GOLD_DIR MIRROR LR DROPOUT PRODUCTS RELA_VENV".split()


def run_recipe(path, script, *words, fails=False, **variables):
    """What it printed, with `path` as PATH; it must succeed, or with `fails` end in one line, which is returned."""
    environment = {name: value for name, value in os.environ.items() if name not in OWN}
    modules = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment.update({**SMALL, "PATH": path, "PYTHONPATH": modules, **variables})
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / script), *map(str, words)],
        env={name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if fails:
        assert done.returncode == 1, done.stdout
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
