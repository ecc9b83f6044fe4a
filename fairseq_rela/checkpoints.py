"""Loading and saving fairseq's checkpoints: loading never runs code, and saving is atomic."""

import os
import re
import zipfile
from typing import Any, BinaryIO, Optional, cast

import torch
from torch import Tensor

from fairseq_rela.atomic import write_atomically
from fairseq_rela.errors import InputError

# Before version 2.4 torch has no list of what is safe to load, so it cannot be told to load safely.
SAFE_LOADING = {"weights_only": True} if hasattr(torch.serialization, "add_safe_globals") else {}
_NEVER_SET = "_float_tensor"  # fairseq 0.12.2 saves what happened to be in memory there, and uses only its type
# Words of torch's advice to turn safe loading off. It is never shown, because then a checkpoint could run code.
_ADVICE = re.compile(r"weights[_ ]only|safe_globals|torch\.load|arbitrary code", re.IGNORECASE)


def load(path: str) -> dict:
    """A fairseq checkpoint, loaded as safely as this version of torch can. All its weights are plain tensors."""
    if not os.path.isfile(path):
        raise InputError(f"{path}: {'is a directory, not a' if os.path.isdir(path) else 'no such'} checkpoint file")
    _check_not_compressed(path)
    try:
        checkpoint = torch.load(path, map_location="cpu", **SAFE_LOADING)
    except Exception as error:  # torch raises many types of exceptions for damaged bytes
        raise InputError(f"{path}: {_reason(error)}") from None
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        raise InputError(f"{path}: not a fairseq checkpoint (it has no 'model')")
    if not checkpoint["model"]:
        raise InputError(f"{path}: not a fairseq checkpoint (its 'model' has no weights)")
    for name, weight in checkpoint["model"].items():
        _check_weight(path, name, weight)
    return checkpoint


def _check_not_compressed(path: str) -> None:
    """InputError if a part of the file is compressed: torch never compresses, and unpacking could fill the memory."""
    try:
        size = os.path.getsize(path)
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except Exception:  # not a zip file: in torch's older format, or damaged. Then torch.load reports it
        return
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
            raise InputError(f"{path}: not written by torch ({member.filename[:40]!r} is compressed)")


def _reason(error: Exception) -> str:
    """Why a checkpoint could not be loaded, in one line and without torch's advice."""
    text = str(error).strip()
    refused = re.search(r"GLOBAL ([\w.]+)", text)
    if refused:
        return f"refused; loading it would call {refused[1][:80]}, which a fairseq checkpoint does not need"
    detail = text.rpartition("WeightsUnpickler error:")[2].strip().split("\n")[0][:120]
    if _ADVICE.search(detail):
        detail = "its pickled part is damaged"
    return f"not a complete checkpoint ({type(error).__name__}: {detail})"


def _check_weight(path: str, name: Any, weight: Any) -> None:
    """InputError unless `weight` is a plain tensor of finite numbers that are all in the file."""
    if not isinstance(name, str):
        raise InputError(f"{path}: the name of a weight is {str(name)[:80]}, a {type(name).__name__}, not text")
    if not isinstance(weight, Tensor):
        raise InputError(f"{path}: its weight {name[:80]!r} is a {type(weight).__name__}, not a tensor")
    if not _is_plain(weight):
        raise InputError(f"{path}: its weight '{name[:80]}' is not a plain tensor of real numbers")
    storage = weight.untyped_storage() if hasattr(weight, "untyped_storage") else weight.storage()
    held = storage.nbytes() // weight.element_size()
    if weight.numel() > held:  # an expanded tensor: a copy of it could fill the memory
        raise InputError(
            f"{path}: its weight '{name[:80]}' has the shape {list(weight.shape)}, "
            f"but the file holds {held} numbers for it"
        )
    unused = name.endswith(_NEVER_SET) or not weight.is_floating_point()
    if not unused and not torch.isfinite(weight.float()).all():
        raise InputError(f"{path}: its weight '{name[:80]}' is infinite or not a number: its training has failed")


def _is_plain(weight: Tensor) -> bool:
    if weight.layout != torch.strided or weight.device.type != "cpu" or getattr(weight, "is_nested", False):
        return False
    return not weight.is_quantized and not weight.is_complex()


class _Sink:
    """A file for torch.save, which would hide errors in writing. It keeps the first error and then writes no more."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: Optional[OSError] = None

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        pass  # `write_atomically` flushes


def save(checkpoint: dict, path: str) -> None:
    """Write a checkpoint atomically. A file at `path` stays until the new one is complete."""
    directory = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise InputError(f"{path}: the directory {directory} does not exist")
    if os.path.isdir(path):
        raise InputError(f"{path}: is a directory; give the name of a file")

    def write(file: BinaryIO) -> None:
        sink = _Sink(file)
        torch.save(checkpoint, cast(BinaryIO, sink))
        if sink.error:
            raise sink.error

    write_atomically(path, write)
