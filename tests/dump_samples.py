"""Sentences made from their id, so that a test knows what a dump must hold without keeping it."""

import os
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from fairseq_rela.recording.dump import KINDS, AttentionDump, DumpInfo, DumpWriter, KindInfo

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def make_info(layers: int = 2, heads: int = 3, kinds: Sequence[str] = KINDS, **changes) -> DumpInfo:
    row = KindInfo("rela_g", False, heads, tuple(range(layers)), layers)
    return DumpInfo("transformer_rela", dict.fromkeys(kinds, row), **{"options": {"beam": 4}, **changes})


class Sentence(NamedTuple):
    source: List[str]
    target: List[str]
    weights: Dict[str, np.ndarray]


def make_sentence(id: int, info: Optional[DumpInfo] = None, sparsity: float = 0.7) -> Sentence:
    info = info or make_info()
    rng = np.random.default_rng(id)
    source, target = ([*(f"▁{id}.{i}" for i in range(rng.integers(0, 9))), "</s>"] for _ in range(2))
    weights = {}
    for kind, row in info.kinds.items():
        shape = row.shape(kind, len(source), len(target))
        array = rng.standard_normal(shape).astype(np.float32) * (rng.random(shape) >= sparsity)
        weights[kind] = np.tril(array) if kind == "decoder" else array
    return Sentence(source, target, weights)


def add_sentence(writer: DumpWriter, id: int, rank: int = 0) -> None:
    source, target, weights = make_sentence(id + 1000 * rank, writer.info)
    writer.add(id, source, target, rank=rank, **weights)


def write_dump(path, ids: Sequence[int], info: Optional[DumpInfo] = None, **options) -> AttentionDump:
    with DumpWriter(path, info or make_info(), **options) as writer:
        for id in ids:
            add_sentence(writer, id)
    return AttentionDump(path)


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Assert that both are equal bit by bit, except that the dump reads -0.0 as 0.0."""
    left, right = (np.where(array == 0, np.float32(0), array) for array in (left, right))
    return left.dtype == right.dtype == np.float32 and left.shape == right.shape and left.tobytes() == right.tobytes()


def assert_holds(dump: AttentionDump, ids: Sequence[int], begin: int = 0) -> None:
    """Assert that the dump holds exactly these sentences, all complete. Those before dump[begin] are not read."""
    assert dump.ids.tolist() == sorted(ids)
    for record in map(dump.__getitem__, range(begin, len(dump))):
        source, target, weights = make_sentence(record.id + 1000 * record.rank, dump.info)
        assert (record.source, record.target) == (source, target)
        for kind, array in weights.items():
            assert same_bits(record.weights(kind), array)


def start_python(code: str, *args: object) -> "subprocess.Popen[str]":
    """A child that runs `code` with the package and this file importable."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.path.join(ROOT, "tests")])}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
