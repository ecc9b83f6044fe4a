"""fairseq's commands for the tests: in this process where that is enough, or in a new process where it matters."""

import contextlib
import io
import os
import socket
import subprocess
import sys
from pathlib import Path

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate, interactive, train, validate
from warm_commands import warm_path

import fairseq_rela.models
import fairseq_rela.tasks
from fairseq_rela.cli import main as fairseq_rela

ROOT = Path(__file__).resolve().parent.parent
USER_DIR = str(ROOT / "fairseq_rela")

TRAINING = """
    --cpu --optimizer adam --lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 10 --dropout 0.1
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 400 --required-batch-size-multiple 1
    --encoder-layers 1 --decoder-layers 1 --share-decoder-input-output-embed --num-workers 0
    --log-format simple --log-interval 1 --seed 3
""".split()
SEARCH = "--cpu --beam 4 --lenpen 0.6 --max-len-b 30 --required-batch-size-multiple 1 --num-workers 0".split()


def fairseq_train(data, save_dir, *flags, arch="transformer_rela_g_tiny"):
    arguments = [str(data), "--arch", arch, "--save-dir", str(save_dir), *TRAINING, *map(str, flags)]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    train.main(convert_namespace_to_omegaconf(args))


def fairseq_generate(data, checkpoint, *flags):
    """What fairseq-generate prints, as lines."""
    return _printed(generate, options.get_generation_parser(), data, checkpoint, *flags)


def fairseq_interactive(data, checkpoint, file, *flags):
    """What fairseq-interactive prints of a file's lines, as lines."""
    parser = options.get_interactive_generation_parser()
    return _printed(interactive, parser, data, checkpoint, "--input", file, *flags)


def _printed(program, parser, data, checkpoint, *flags):
    arguments = [str(data), "--path", str(checkpoint), *SEARCH, *map(str, flags)]
    args = options.parse_args_and_arch(parser, arguments)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        program.main(convert_namespace_to_omegaconf(args))
    return printed.getvalue().splitlines()


def fairseq_validate(data, checkpoint, *flags):
    arguments = [str(data), "--path", str(checkpoint), "--task", "translation", "--cpu", *map(str, flags)]
    args = options.parse_args_and_arch(options.get_validation_parser(), arguments)
    validate.main(convert_namespace_to_omegaconf(args))


def environment(**variables):
    """This process's, with the commands of its virtual environment first in the path."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": here + os.pathsep + os.environ["PATH"], "OMP_NUM_THREADS": "1", **variables}


def warm_environment(**variables):
    """As `environment`, and fairseq's commands start at once."""
    return environment(PATH=warm_path(), **variables)


def command(*words, cwd=ROOT, stdin=None, check=True, **variables):
    """Run a command in its own process; what it printed, both streams together."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=str(cwd),
        env=warm_environment(**variables),
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert not check or done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def corpus(directory, *sizes):
    """A small corpus, preprocessed with the commands a user gives; the path of the data."""
    text, binary = toy_text(directory, *sizes), directory / "bin"
    files = [f"--{split}pref={text / split}" for split in ("train", "valid", "test")]
    command("fairseq-preprocess", "-s", "src", "-t", "tgt", *files, "--destdir", binary)
    return binary


def language_model_data(directory, text):
    """The target side of a corpus, preprocessed likewise; the path of the data."""
    files = [f"--{split}pref={text / split}.tgt" for split in ("train", "valid", "test")]
    command("fairseq-preprocess", "--only-source", *files, "--destdir", directory / "lm")
    return directory / "lm"


def toy_text(directory, *sizes):
    """A small corpus as text, in a directory of its own; its path."""
    assert fairseq_rela(["toy-corpus", str(directory / "text"), "--lexicon", "50", *map(str, sizes)]) == 0
    return directory / "text"


def tagged(lines, tag):
    """The lines of fairseq-generate's output with this tag (S, T, H, D, P, A, …), without it, by sentence."""
    rows = (line.split("\t") for line in lines if line.startswith(tag + "-"))
    return {int(fields[0][len(tag) + 1 :]): fields[1:] for fields in rows}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def train_on_two(data, save_dir, *flags):
    """Data-parallel training in two processes on one CPU."""
    port = free_port()
    ranks = []
    for rank in (0, 1):
        together = (
            f"--distributed-world-size 2 --distributed-rank {rank} --distributed-init-method tcp://127.0.0.1:{port}"
        )
        together += " --distributed-no-spawn --distributed-backend gloo --ddp-backend legacy_ddp"
        words = ["fairseq-train", data, "--user-dir", USER_DIR, "--arch", "transformer_rela_g_tiny", *TRAINING]
        words += [*together.split(), "--save-dir", save_dir, *flags]
        ranks.append(
            subprocess.Popen(
                [str(word) for word in words],
                env=warm_environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    printed = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], printed[0][-2000:] + printed[1][-2000:]
    return printed[0]
