"""Everything that the plugin changes in fairseq and torch, in one place: `apply_patches`."""

import argparse
import collections
import typing

import numpy as np
import torch

from fairseq_rela.checkpoints import SAFE_LOADING


def apply_patches() -> None:
    """Apply every patch. Importing `fairseq_rela.models` calls this once; calling it again changes nothing.

    1. `allow_fairseq_checkpoints`: torch's safe loading accepts what fairseq's own checkpoints contain. Since
       version 2.6 `torch.load` refuses every class that it does not know to be harmless, and fairseq's checkpoints
       have a few plain containers beside their tensors.
    2. `copy_checkpoints_atomically`: fairseq copies `checkpoint_last.pt` atomically. fairseq writes a checkpoint to
       a temporary file and renames it, but then copies it directly onto `checkpoint_last.pt`: a training that is
       killed during that copy cannot resume.
    3. `link_no_null_rows`: `--print-alignment` gives no link to a target token that attends to nothing. fairseq takes
       the largest weight of a row, which in a row of zeros is the first.
    """
    allow_fairseq_checkpoints()
    copy_checkpoints_atomically()
    link_no_null_rows()


def allow_fairseq_checkpoints() -> None:
    """Add the classes in fairseq's checkpoints to those that torch loads safely. The check itself stays on.

    A checkpoint that would run code is refused as before. Before torch 2.4 there is nothing to do.
    """
    if SAFE_LOADING:
        torch.serialization.add_safe_globals(_classes_in_fairseq_checkpoints())


def _classes_in_fairseq_checkpoints() -> list:
    """The classes that fairseq itself pickles into a checkpoint, and nothing else."""
    from fairseq.distributed.utils import _TensorPlaceholder
    from omegaconf import DictConfig, ListConfig
    from omegaconf.base import ContainerMetadata, Metadata
    from omegaconf.nodes import AnyNode

    # The functions that numpy's pickles call. They are asked for here, because numpy 2 moved their module.
    scalar, array = np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]
    return [
        argparse.Namespace,  # `--arch` models keep their flags in one
        collections.defaultdict,
        scalar,  # `--eval-bleu` keeps its scores and counts in numpy's numbers and arrays
        array,
        np.ndarray,
        np.dtype,
        *(type(np.dtype(kind)) for kind in (np.float64, np.float32, np.int64, np.int32)),
        # omegaconf's containers, their metadata, and the types that the metadata names. When a data-parallel
        # training resumes, rank 0 sends its configuration to the others in these.
        *(DictConfig, ListConfig, AnyNode, ContainerMetadata, Metadata),
        *(dict, list, int, typing.Any),
        _TensorPlaceholder,
    ]


def copy_checkpoints_atomically() -> None:
    """Make fairseq's `PathManager.copy` copy to a temporary file and rename it."""
    from fairseq.file_io import PathManager

    copy = PathManager.copy
    if getattr(copy, "is_atomic", False):
        return

    def copy_atomically(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if not PathManager.supports_rename(dst_path):
            return copy(src_path, dst_path, overwrite=overwrite)
        copied = copy(src_path, dst_path + ".tmp", overwrite=True)
        PathManager.rename(dst_path + ".tmp", dst_path)
        return copied

    copy_atomically.is_atomic = True  # type: ignore[attr-defined]
    PathManager.copy = staticmethod(copy_atomically)


def link_no_null_rows() -> None:
    """Make fairseq's `extract_hard_alignment` leave out the target tokens whose row of attention is null."""
    from fairseq import utils

    extract = utils.extract_hard_alignment
    if getattr(extract, "leaves_out_null_rows", False):
        return

    def extract_hard_alignment(
        attn: torch.Tensor, src_sent: torch.Tensor, tgt_sent: torch.Tensor, pad: int, eos: int
    ) -> list:
        """One (source token, target token) for each target token that attends to a source token; attn is (T, S)."""
        links = extract(attn, src_sent, tgt_sent, pad, eos)
        # fairseq makes one link for each of these target tokens, or none at all. There are no rows for padding.
        targets, sources = (((each != pad) & (each != eos)).nonzero(as_tuple=True)[0] for each in (tgt_sent, src_sent))
        attended = attn[targets][:, sources].ne(0).any(dim=1).tolist()
        return [link for link, seen in zip(links, attended) if seen]

    extract_hard_alignment.leaves_out_null_rows = True  # type: ignore[attr-defined]
    utils.extract_hard_alignment = extract_hard_alignment
