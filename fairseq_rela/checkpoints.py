"""fairseq's checkpoints under torch's safe loading.

Since torch 2.6 `torch.load` unpickles only what is known to be harmless. fairseq's checkpoints hold a
few plain containers beside tensors; they are allowed by name here, and the check itself stays on: a
checkpoint that would run code is refused as before.
"""

import argparse
import collections

import numpy as np
import torch

# torch before 2.4 has no list of what is safe, and cannot be asked to load safely
SAFELY = {"weights_only": True} if hasattr(torch.serialization, "add_safe_globals") else {}


def _contents_of_fairseq_checkpoints() -> list:
    """The classes that fairseq itself pickles into a checkpoint, and nothing else."""
    from omegaconf import DictConfig, ListConfig
    from omegaconf.base import ContainerMetadata, Metadata
    from omegaconf.nodes import (
        AnyNode,
        BooleanNode,
        EnumNode,
        FloatNode,
        IntegerNode,
        StringNode,
    )

    scalar = type(np.float64(0)).__reduce__(np.float64(0))[0]  # its module moved in numpy 2
    return [
        argparse.Namespace,  # `--arch` models keep their flags in one
        collections.defaultdict,
        scalar,  # `--eval-bleu` keeps its best score as a numpy scalar
        np.dtype,
        *(type(np.dtype(kind)) for kind in (np.float64, np.float32, np.int64, np.int32)),
        # what the second rank of a data-parallel run is sent, and hydra runs keep
        DictConfig,
        ListConfig,
        ContainerMetadata,
        Metadata,
        AnyNode,
        BooleanNode,
        EnumNode,
        FloatNode,
        IntegerNode,
        StringNode,
    ]


def allow_fairseq_checkpoints() -> None:
    """Let torch's safe loading take what fairseq's own checkpoints hold (nothing to do before torch 2.4)."""
    if SAFELY:
        torch.serialization.add_safe_globals(_contents_of_fairseq_checkpoints())
