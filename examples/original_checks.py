"""Checks that a file is complete, and that it is the file that its publisher offers."""

import gzip
import hashlib
import os
import tarfile
import zlib
from typing import Dict, Optional

import recipe

BLOCK = 1 << 20


def digest(path: str, kind: str) -> str:
    """The sha256 or md5 of a file."""
    total = hashlib.new(kind)
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            total.update(block)
    return total.hexdigest()


def listed_checksums(setting: str) -> Optional[Dict[str, str]]:
    """The checksums of CHECKSUMS by file name. Empty for `none`; None to use the data set's own checksums."""
    if not setting:
        return None
    if setting == "none":
        return {}
    if not os.path.isfile(setting):
        raise recipe.RecipeError(f"CHECKSUMS={setting} is not a file; give a file like sha256sum's output, or none")
    with open(setting, encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip()]
    return {os.path.basename(name.lstrip("*")): f"sha256:{checksum}" for checksum, name in rows}


def fault(path: str, checksum: Optional[str]) -> Optional[str]:
    """What is wrong with a file, in a few words, or None. Without a checksum, an archive is read to its end."""
    if checksum:
        kind, _, expected = checksum.partition(":")
        actual = digest(path, kind)
        return None if actual == expected else f"its {kind} is {actual}, the original's is {expected}"
    name = path[: -len(".part")] if path.endswith(".part") else path
    if name.endswith((".gz", ".tgz")):
        return None if _reads_as_gzip(path) else "gzip finds it truncated or corrupted"
    if name.endswith(".tar"):
        return None if _reads_as_tar(path) else "tar finds it truncated or corrupted"
    return None


def _reads_as_gzip(path: str) -> bool:
    try:
        with gzip.open(path) as file:
            while file.read(BLOCK):
                pass
    except (OSError, EOFError, zlib.error):
        return False
    return True


def _reads_as_tar(path: str) -> bool:
    try:
        with tarfile.open(path) as archive:
            end = max((member.offset_data + member.size for member in archive), default=0)
    except (OSError, EOFError, tarfile.TarError):
        return False
    return end <= os.path.getsize(path)
