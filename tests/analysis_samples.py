"""Small dumps for the tests of the analyses, written with the real writer."""

import dataclasses

import numpy as np

from fairseq_rela.recording.dump import DumpInfo, DumpWriter, KindInfo

SENTENCES = [
    (["a@@", "b", "c", "</s>"], ["x", "y@@", "z", "</s>"]),
    (["c", "</s>"], ["x", ",", "x", "</s>"]),
    (["a", "b", "c", "d", "</s>"], ["z", ",", "</s>"]),
    (["d", ",", "</s>"], ["y", "x", "</s>"]),
]


def rectified(shape, draw, sparsity=0.6):
    """ReLU-like weights: unbounded, many exact zeros, some rows all zero."""
    weights = np.maximum(draw.randn(*shape), 0) * (draw.rand(*shape) > sparsity / 2)
    weights[draw.rand(*shape[:3]) < 0.2] = 0
    return weights.astype(np.float32)


def softmax(shape, draw):
    exp = np.exp(2 * draw.randn(*shape))
    return (exp / exp.sum(axis=-1, keepdims=True)).astype(np.float32)


def random_weights(shape, kind, attention, draw):
    """Weights of one kind: causal where the kind is the decoder's."""
    if attention == "softmax":
        weights = softmax(shape, draw)
        if kind == "decoder":
            weights *= np.tri(*shape[2:], dtype=np.float32)
            weights /= weights.sum(axis=-1, keepdims=True)
        return weights
    weights = rectified(shape, draw)
    if attention == "rela_g_gelu":
        weights = weights - np.float32(0.05) * (draw.rand(*shape) < 0.3).astype(np.float32)
    return weights * np.tri(*shape[2:], dtype=np.float32) if kind == "decoder" else weights


def write_dump(
    path, sentences=SENTENCES, attention="rela_g", layers=2, heads=3, seed=0, ids=None, kinds=None, norms=None, **given
):
    """A dump of `sentences`; `cross=[…]` and so on give the weights of a kind, the rest are random."""
    kinds = kinds or ("encoder", "decoder", "cross")
    draw = np.random.RandomState(seed)
    row = KindInfo(attention, attention in ("softmax", "sparsemax", "entmax15"), heads, tuple(range(layers)), layers)
    rows = {kind: dataclasses.replace(row, norms=norms is not None and kind == "cross") for kind in kinds}
    info = DumpInfo(model=f"transformer_{attention}", kinds=rows, options=given.pop("options", {}))
    with DumpWriter(str(path), info) as writer:
        for number, (source, target) in enumerate(sentences):
            weights = {}
            for kind in kinds:
                shape = row.shape(kind, len(source), len(target))
                weights[kind] = (
                    np.asarray(given[kind][number], dtype=np.float32).reshape(shape)
                    if kind in given
                    else random_weights(shape, kind, attention, draw)
                )
            sizes = None
            if norms is not None:
                shape = row.shape("cross", len(source), len(target))
                sizes = {"cross": np.asarray(norms[number], dtype=np.float32).reshape(shape)}
            writer.add(number if ids is None else ids[number], source, target, **weights, norms=sizes)
    return str(path)


def one_head(matrices):
    """[(T, S) …] as the weights of a model of one layer with one head."""
    return [np.asarray(matrix)[None, None] for matrix in matrices]


# the same sentences in both directions
LENGTHS = [(5, 5), (3, 4), (6, 6), (2, 2)]
PLAIN = [([*(f"s{i}" for i in range(s)), "</s>"], [*(f"t{i}" for i in range(t)), "</s>"]) for s, t in LENGTHS]
TURNED = [(target, source) for source, target in PLAIN]


def with_one_good_head(sentences, layer, head, shifted, seed):
    """Random weights of two layers and three heads; one head is the identity, normal or shifted."""
    draw, every = np.random.RandomState(seed), []
    for source, target in sentences:
        weights = draw.rand(2, 3, len(target), len(source))
        weights[layer, head] = 0
        diagonal = np.eye(len(target), len(source))
        diagonal[-1] = diagonal[:, -1] = 0
        rows = slice(1, None) if shifted else slice(None, -1)
        weights[layer, head, rows] = 9 * diagonal[:-1]
        every.append(weights)
    return every
