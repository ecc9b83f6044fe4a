"""One file of a dump: a plain, uncompressed .npz with many sentences.

    index           one row per sentence: id, rank, source_length, target_length, and where its parts are:
                    text, KIND_mask, KIND_values, KIND_norms as [begin, end), each with a CRC-32
    text            uint8: the JSON of [source tokens, target tokens] of each sentence, one after another
    KIND_mask       uint8: one bit per weight (C order, first weight in the highest bit), 0 where the weight is 0
    KIND_values     float32: the weights that are not 0
    KIND_norms      float32: the norms of the same positions, if dump.json says that the kind has norms

An exact zero costs one bit. Every other value is stored exactly: negative, subnormal, infinite, NaN. -0.0 is an
exact zero too and is read as 0.0. The checksums of the parts let a reader check one sentence without reading the
others. The zip's own checksum covers the index, which is all that is read to open a dump.
"""

import io
import json
import math
import os
import struct
import zipfile
import zlib
from typing import BinaryIO, Dict, Iterable, List, Mapping, Sequence, Tuple

import numpy as np

from fairseq_rela.dump.info import DumpInfo, KindInfo
from fairseq_rela.dump.zeros import BITS, is_nonzero
from fairseq_rela.errors import InputError
from fairseq_rela.inputs import require_file

MOST_ID = 10**9 - 1  # of a sentence; it is a line number of the text that was translated
_SPAN = ("<i8", (2,))


def index_dtype(kinds: Mapping[str, KindInfo]) -> np.dtype:
    """The type of a row of the index."""
    fields: List[tuple] = [(name, "<i8") for name in ("id", "rank", "source_length", "target_length")]
    fields += [("text", *_SPAN), ("text_crc", "<u4")]
    for kind, info in kinds.items():
        fields += [(f"{kind}_mask", *_SPAN), (f"{kind}_values", *_SPAN), (f"{kind}_crc", "<u4")]
        if info.norms:
            fields += [(f"{kind}_norms", *_SPAN), (f"{kind}_norms_crc", "<u4")]
    return np.dtype(fields)


def pack(weights: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """float32 of any shape → (mask, uint8; the values that are not 0, float32)."""
    flat = np.ascontiguousarray(weights, dtype="<f4").reshape(-1)
    nonzero = is_nonzero(flat)
    return np.packbits(nonzero), flat.view(BITS)[nonzero].view("<f4")


def pack_like(norms: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The norms at the positions of `mask`, that of the weights of the same shape."""
    flat = np.ascontiguousarray(norms, dtype="<f4").reshape(-1)
    return flat.view(BITS)[np.unpackbits(mask, count=flat.size).view(bool)].view("<f4")


def unpack(mask: np.ndarray, values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The inverse of `pack`. ValueError if the arguments do not fit together."""
    count = int(np.prod(shape, dtype=np.int64))
    if len(mask) != (count + 7) // 8:
        raise ValueError(f"a mask of {len(mask)} bytes for {count} weights")
    bits = np.zeros(count, BITS)
    bits[np.unpackbits(mask, count=count).view(bool)] = values.view(BITS)
    return bits.view("<f4").reshape(shape)


class PendingSegment:
    """The packed sentences of a segment that is not written yet, in memory."""

    def __init__(self, kinds: Mapping[str, KindInfo]) -> None:
        self.dtype = index_dtype(kinds)
        self.bytes = 0
        self._rows: List[tuple] = []
        self._parts: Dict[str, List[np.ndarray]] = {"text": []}
        for kind, info in kinds.items():
            self._parts.update({f"{kind}_mask": [], f"{kind}_values": []})
            if info.norms:
                self._parts[f"{kind}_norms"] = []
        self._ends = dict.fromkeys(self._parts, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        id: int,
        rank: int,
        source: Sequence[str],
        target: Sequence[str],
        weights: Dict[str, np.ndarray],
        norms: Mapping[str, np.ndarray],
    ) -> None:
        """Add a sentence. `weights`: for each kind in the usual order, (L, H, queries, keys). `norms` likewise."""
        text = json.dumps([list(source), list(target)], ensure_ascii=False).encode("utf-8", "surrogatepass")
        row: List[object] = [id, rank, len(source), len(target)]
        row += [self._append("text", np.frombuffer(text, np.uint8)), zlib.crc32(text)]
        for kind, array in weights.items():
            mask, values = pack(array)
            row += [self._append(f"{kind}_mask", mask), self._append(f"{kind}_values", values)]
            crc = zlib.crc32(mask.tobytes())
            row += [zlib.crc32(values.tobytes(), crc)]
            if kind in norms:
                own = pack_like(norms[kind], mask)
                row += [self._append(f"{kind}_norms", own), zlib.crc32(own.tobytes(), crc)]
        self._rows.append(tuple(row))

    def _append(self, member: str, part: np.ndarray) -> Tuple[int, int]:
        begin = self._ends[member]
        self._parts[member].append(part)
        self._ends[member] = begin + len(part)
        self.bytes += part.nbytes
        return begin, begin + len(part)

    def write(self, file: BinaryIO) -> None:
        """Write the segment."""
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for member, parts in self._parts.items():
                _write_array(archive, member, parts, _dtype(member))
            _write_array(archive, "index", [np.array(self._rows, self.dtype)], self.dtype)


def _dtype(member: str) -> np.dtype:
    """The type of a member that is not the index."""
    return np.dtype("<f4" if member.endswith(("_values", "_norms")) else np.uint8)


def _write_array(archive: zipfile.ZipFile, name: str, parts: List[np.ndarray], dtype: np.dtype) -> None:
    """Write what np.savez writes for the concatenated parts, without concatenating them."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (sum(map(len, parts)),)}
    with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for part in parts:
            member.write(part.tobytes())


def _check_stored(members: Iterable[zipfile.ZipInfo], size: int) -> None:
    """ValueError if a member is compressed or larger than the file: unpacking it could fill the memory."""
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
            raise ValueError(f"{member.filename} is compressed, or larger than the file; a segment is stored as it is")


def _index_array(data: bytes, dtype: np.dtype) -> np.ndarray:
    """The index from its bytes. InputError if it is of other kinds, ValueError if its size is wrong."""
    file = io.BytesIO(data)
    np.lib.format.read_magic(file)
    shape, _, stored_dtype = np.lib.format.read_array_header_1_0(file)
    if stored_dtype != dtype or len(shape) != 1:
        raise InputError("does not belong to this dump: its kinds of attention differ from those in dump.json")
    rows = data[file.tell() :]
    if len(rows) != shape[0] * dtype.itemsize:
        raise ValueError(f"an index of {len(rows)} bytes for {shape[0]} sentences")
    return np.frombuffer(rows, dtype)


class Segment:
    """A segment on disk. Opening it reads the index only; each part of a sentence is read when it is asked for.

    No file stays open, so a dump of a thousand segments can be read, pickled and forked.
    """

    def __init__(self, path: str, info: DumpInfo) -> None:
        self.path = path
        self._info = info
        require_file(path)
        self._arrays: Dict[str, int] = {}  # where the data of an array begin in the file, once known
        try:
            with zipfile.ZipFile(path) as archive:
                self._members = {member.filename: member for member in archive.infolist()}
                _check_stored(self._members.values(), os.path.getsize(path))
                # Completely, because zipfile verifies a checksum only at the end of a member.
                index = archive.read("index.npy")
            self.index = _index_array(index, index_dtype(info.kinds))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        except Exception as error:  # zipfile and numpy raise many types of exceptions for damaged bytes
            raise self._damaged(error) from None
        self._check_index()

    def _damaged(self, why: object) -> InputError:
        shard = self.path.rpartition("-")[0]
        return InputError(
            f"{self.path}: truncated or changed since it was written ({why}); restore it from a copy, "
            f"or delete {shard}-*.npz and generate again with --attn-dump-resume"
        )

    def _check_index(self) -> None:
        """Check every number of the index, so that no later step reads or allocates more than the file holds."""
        for part in self._members_of_index():
            begin, end = self.index[part].T
            member = self._members.get(part + ".npy")
            length = member.file_size // _dtype(part).itemsize if member else -1
            if np.any((begin < 0) | (end < begin) | (end > length)):
                raise self._damaged(f"its index points outside of its {part}")
        self._check_numbers()
        for kind, info in self._info.kinds.items():
            lengths = self.index["source_length"], self.index["target_length"]
            begin, end = self.index[f"{kind}_mask"].T
            # First as floating point, because a product of large integers would wrap.
            about = math.prod(info.shape(kind, *(each.astype(np.float64) for each in lengths)))
            exact = math.prod(info.shape(kind, *lengths))
            if np.any(about > 8.0 * (end - begin)) or np.any(end - begin != (exact + 7) // 8):
                raise InputError(
                    f"{self.path}: does not belong to this dump: its layers and heads differ from those in dump.json"
                )
            begin, end = self.index[f"{kind}_values"].T
            if np.any(end - begin > exact):
                raise self._damaged(f"its index has more {kind} values than weights")
            if info.norms and np.any(self.index[f"{kind}_norms"] @ [-1, 1] != end - begin):
                raise self._damaged(f"its index does not have as many {kind} norms as values")

    def _members_of_index(self) -> List[str]:
        """The arrays that the index points into."""
        return [name for name in self.index.dtype.names or () if self.index.dtype[name].shape == (2,)]

    def _check_numbers(self) -> None:
        for name in ("id", "rank"):
            wrong = np.flatnonzero((self.index[name] < 0) | (self.index[name] > MOST_ID))
            if len(wrong):
                raise self._damaged(f"its sentence {wrong[0]} has the {name} {self.index[name][wrong[0]]}")
        # Each token takes at least two bytes of the text.
        begin, end = self.index["text"].T
        for name in ("source_length", "target_length"):
            wrong = np.flatnonzero((self.index[name] < 0) | (self.index[name] > end - begin))
            if len(wrong):
                raise self._damaged(f"its sentence {wrong[0]} has the {name} {self.index[name][wrong[0]]}")

    def tokens(self, row: np.void) -> Tuple[List[str], List[str]]:
        """(source, target) of a row of the index."""
        (text,) = self._read(row, "text", ["text"])
        try:
            source, target = json.loads(text.tobytes().decode("utf-8", "surrogatepass"))
            strings = all(isinstance(token, str) for side in (source, target) for token in side)
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(error) from None
        lengths = int(row["source_length"]), int(row["target_length"])
        if not strings or not isinstance(source, list) or not isinstance(target, list):
            raise self._damaged(f"the text of sentence {row['id']} is not two lists of tokens")
        if (len(source), len(target)) != lengths:
            raise self._damaged(f"the text of sentence {row['id']} does not have {lengths[0]} and {lengths[1]} tokens")
        return source, target

    def weights(self, row: np.void, kind: str) -> np.ndarray:
        """(L, H, queries, keys) of a row of the index, float32."""
        return self._unpacked(row, kind, *self._read(row, kind, [f"{kind}_mask", f"{kind}_values"]))

    def norms(self, row: np.void, kind: str) -> np.ndarray:
        """The norms of a kind that has them, in the shape of its weights."""
        return self._unpacked(row, kind, *self._read(row, f"{kind}_norms", [f"{kind}_mask", f"{kind}_norms"]))

    def _unpacked(self, row: np.void, kind: str, mask: np.ndarray, values: np.ndarray) -> np.ndarray:
        info = self._info.kinds[kind]
        try:
            return unpack(mask, values, info.shape(kind, int(row["source_length"]), int(row["target_length"])))
        except ValueError as error:
            raise self._damaged(error) from None

    def _read(self, row: np.void, what: str, members: List[str]) -> List[np.ndarray]:
        """The named parts of a row, after checking their checksum."""
        parts, crc = [], 0
        try:
            with open(self.path, "rb") as file:
                for member in members:
                    dtype = _dtype(member)
                    begin, end = (int(at) for at in row[member])
                    file.seek(self._locate(file, member) + begin * dtype.itemsize)
                    data = file.read((end - begin) * dtype.itemsize)
                    crc = zlib.crc32(data, crc)
                    parts.append(np.frombuffer(data, dtype))
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None
        except Exception as error:
            raise self._damaged(error) from None
        if crc != row[f"{what}_crc"]:
            raise self._damaged(f"the {what} of sentence {row['id']} has a wrong checksum")
        return parts

    def _locate(self, file: BinaryIO, member: str) -> int:
        """The offset of the first byte of an array, after the headers of zip and numpy, which vary in length."""
        if member not in self._arrays:
            file.seek(self._members[member + ".npy"].header_offset + 26)
            name_length, extra_length = struct.unpack("<HH", file.read(4))
            file.seek(name_length + extra_length, 1)
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            self._arrays[member] = file.tell()
        return self._arrays[member]
