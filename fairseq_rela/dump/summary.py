"""What is in a dump, as `fairseq-rela dump-info` shows it."""

import os
from dataclasses import asdict
from typing import Any, Dict

import numpy as np

from fairseq_rela.dump.files import shard_of
from fairseq_rela.dump.info import INFO_FILE
from fairseq_rela.dump.reader import AttentionDump


def summarize(dump: AttentionDump) -> Dict[str, Any]:
    """The content of `dump-info --json`. Reads only the indexes of the segments, no weights."""
    kinds = {}
    for kind, info in dump.info.kinds.items():
        weights = nonzeros = 0
        for segment in dump.segments:
            lengths = (segment.index[name].astype(float) for name in ("source_length", "target_length"))
            weights += int(np.sum(np.prod(np.broadcast_arrays(*info.shape(kind, *lengths)), axis=0)))
            nonzeros += int(np.sum(segment.index[f"{kind}_values"] @ [-1, 1]))
        kinds[kind] = {**asdict(info), "weights": weights, "zeros": weights - nonzeros}
    total = sum(kind["weights"] for kind in kinds.values())
    shards: Dict[int, int] = {}
    for segment in dump.segments:
        shard = shard_of(segment.path)
        shards[shard] = shards.get(shard, 0) + len(segment.index)
    files = [os.path.join(dump.path, INFO_FILE), *(segment.path for segment in dump.segments)]
    size = sum(map(os.path.getsize, files))
    return {
        "path": dump.path,
        "sentences": len(np.unique(dump.ids)),
        "records": len(dump),
        "model": dump.info.model,
        "checkpoint_sha256": dump.info.checkpoint_sha256,
        "fairseq_version": dump.info.fairseq_version,
        "plugin_version": dump.info.plugin_version,
        "kinds": kinds,
        "options": dump.info.options,
        "shards": {str(shard): count for shard, count in sorted(shards.items())},
        "segments": len(dump.segments),
        "bytes": size,
        "weights": total,
        "bytes_per_weight": size / total if total else None,
    }
