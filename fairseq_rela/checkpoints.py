"""What fairseq's checkpoints need: to load under torch's safe loading, and to be whole.

Since torch 2.6 `torch.load` unpickles only what is known to be harmless. fairseq's checkpoints hold a
few plain containers beside tensors; they are allowed by name here, and the check itself stays on: a
checkpoint that would run code is refused as before.
"""

import argparse
import collections
import os
import pickle
import re
import typing

import numpy as np
import torch

from fairseq_rela.atomic import publish
from fairseq_rela.errors import InputError

# torch before 2.4 has no list of what is safe, and cannot be asked to load safely
SAFELY = {"weights_only": True} if hasattr(torch.serialization, "add_safe_globals") else {}


def _contents_of_fairseq_checkpoints() -> list:
    """The classes that fairseq itself pickles into a checkpoint, and nothing else."""
    from fairseq.distributed.utils import _TensorPlaceholder
    from omegaconf import DictConfig, ListConfig
    from omegaconf.base import ContainerMetadata, Metadata
    from omegaconf.nodes import AnyNode

    # the functions that numpy's own pickles call; asked for, since their module moved in numpy 2
    scalar, array = np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]
    return [
        argparse.Namespace,  # `--arch` models keep their flags in one
        collections.defaultdict,
        scalar,  # `--eval-bleu` keeps its scores and counts in numpy's numbers and arrays
        array,
        np.ndarray,
        np.dtype,
        *(type(np.dtype(kind)) for kind in (np.float64, np.float32, np.int64, np.int32)),
        # omegaconf's containers, what they keep of themselves, and the types these name: rank 0 of a
        # data-parallel run sends its configuration to the others so when it resumes
        *(DictConfig, ListConfig, AnyNode, ContainerMetadata, Metadata),
        *(dict, list, int, typing.Any),
        _TensorPlaceholder,
    ]


def allow_fairseq_checkpoints() -> None:
    """Let torch's safe loading take what fairseq's own checkpoints hold (nothing to do before torch 2.4)."""
    if SAFELY:
        torch.serialization.add_safe_globals(_contents_of_fairseq_checkpoints())


def load(path: str) -> dict:
    """A fairseq checkpoint, loaded as safely as this torch can."""
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such checkpoint file")
    try:
        checkpoint = torch.load(path, map_location="cpu", **SAFELY)
    except (RuntimeError, EOFError, OSError, KeyError, ValueError, pickle.UnpicklingError) as error:
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        if refused:
            raise InputError(f"{path}: refused; loading it would call {refused[1]}, which none needs") from None
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"{path}: not a whole checkpoint ({type(error).__name__}: {reason})") from None
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        raise InputError(f"{path}: not a fairseq checkpoint (it has no 'model')")
    return checkpoint


def write_whole(checkpoint: dict, path: str) -> None:
    """Save so that `path` is never half a file: what was there stays until the new one is complete."""
    directory = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise InputError(f"{path}: there is no directory {directory}")
    publish(path, lambda file: torch.save(checkpoint, file), replace=True)


def copy_checkpoints_whole() -> None:
    """Let fairseq put copies of checkpoints in place whole.

    It writes a checkpoint to a temporary file and renames it, but then copies it straight onto
    `checkpoint_last.pt`: killed in between, a training could not resume.
    """
    from fairseq.file_io import PathManager

    copy = PathManager.copy

    def copy_whole(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if not PathManager.supports_rename(dst_path):
            return copy(src_path, dst_path, overwrite=overwrite)
        copied = copy(src_path, dst_path + ".tmp", overwrite=True)
        PathManager.rename(dst_path + ".tmp", dst_path)
        return copied

    PathManager.copy = staticmethod(copy_whole)
