"""What the tests of hostile input share: calling a command, with limits on memory, time and the size of files."""

import os
import resource
import subprocess
import sys
from typing import NamedTuple

from dump_samples import ROOT

MEMORY = 3 << 30  # bytes of address space; torch alone takes half of it
SECONDS = 120  # a test that needs so long has failed


# Packages are imported before the limit is set, because some of them write small files.
FULL_DISK = """
import importlib, logging, resource, signal
logging.getLogger("fairseq").setLevel(logging.WARNING)
if {1!r} in ("average", "convert", "bench", "explore"):
    import fairseq_rela.conversion, fairseq_rela.bench.op
importlib.import_module("fairseq_rela.commands.{1}")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))
"""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def run_command(*words, file_bytes=None, memory=MEMORY, stdout=subprocess.PIPE, code=None, **variables) -> Ended:
    """`fairseq-rela WORDS` in a process of its own. `file_bytes`: no file may become larger (as on a full disk)."""

    def limit():
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **variables}
    code = code or "import sys; from fairseq_rela.cli import main; sys.exit(main())"
    if file_bytes is not None:
        code = FULL_DISK.format(file_bytes, words[0].replace("-", "_")) + code
    process = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=limit,
        timeout=SECONDS,
    )
    return Ended(process.returncode, process.stdout or "", process.stderr)


def assert_one_line(ended: Ended, *parts: object) -> None:
    """Status 1, and one line on stderr that has all of `parts`, no traceback and no temporary file."""
    assert ended.status == 1, ended
    assert ended.err.count("\n") == 1 and ended.err.startswith("fairseq-rela "), ended.err
    assert ".tmp" not in ended.err, ended.err
    for part in parts:
        assert str(part) in ended.err, ended.err
