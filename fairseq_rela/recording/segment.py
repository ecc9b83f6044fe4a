"""One file of a dump: a plain, uncompressed .npz with many sentences.

    index           one row a sentence: id, rank, source_length, target_length, and where its parts are:
                    text, KIND_mask, KIND_values as [begin, end), with a CRC-32 each
    text            uint8: JSON of [source tokens, target tokens] after JSON
    KIND_mask       uint8: a bit a weight (C order, first weight in the highest bit), 0 where the weight is 0
    KIND_values     float32: the weights that are not 0

An exact zero costs one bit and all else is kept bit by bit: negative, subnormal, infinite, NaN. -0.0 is an
exact zero too and comes back as 0.0. The checksums of the parts let a reader trust one sentence without reading
the others; the zip's own covers the index, which is all that is read to open a dump.
"""

import io
import json
import struct
import zipfile
import zlib
from typing import BinaryIO, Dict, Iterable, List, Sequence, Tuple

import numpy as np

from fairseq_rela.errors import InputError
from fairseq_rela.recording.info import DumpInfo

_SPAN = ("<i8", (2,))
_BITS = np.dtype("<u4")
_NOT_SIGN = _BITS.type(0x7FFFFFFF)


def index_dtype(kinds: Iterable[str]) -> np.dtype:
    fields = [(name, "<i8") for name in ("id", "rank", "source_length", "target_length")]
    fields += [("text", *_SPAN), ("text_crc", "<u4")]
    for kind in kinds:
        fields += [(f"{kind}_mask", *_SPAN), (f"{kind}_values", *_SPAN), (f"{kind}_crc", "<u4")]
    return np.dtype(fields)


def is_nonzero(weights: np.ndarray) -> np.ndarray:
    """Where a weight is not exactly 0: bool, of the same shape."""
    if weights.dtype not in (np.float32, np.float16):
        return weights != 0
    # by bits, because `!= 0` is blind to subnormals once a process has asked its CPU to flush them
    bits = np.ascontiguousarray(weights, dtype="<f4").view(_BITS)
    return (bits & _NOT_SIGN).astype(bool).reshape(weights.shape)


def pack(weights: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """float32 of any shape → (mask, uint8; the values that are not 0, float32)."""
    flat = np.ascontiguousarray(weights, dtype="<f4").reshape(-1)
    nonzero = is_nonzero(flat)
    return np.packbits(nonzero), flat.view(_BITS)[nonzero].view("<f4")


def unpack(mask: np.ndarray, values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The inverse of `pack`. ValueError if the three do not agree."""
    count = int(np.prod(shape, dtype=np.int64))
    if len(mask) != (count + 7) // 8:
        raise ValueError(f"a mask of {len(mask)} bytes for {count} weights")
    bits = np.zeros(count, _BITS)
    bits[np.unpackbits(mask, count=count).view(bool)] = values.view(_BITS)
    return bits.view("<f4").reshape(shape)


class PendingSegment:
    """Sentences on their way into a segment, packed, in memory."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.dtype = index_dtype(kinds)
        self.bytes = 0
        self._rows: List[tuple] = []
        self._parts: Dict[str, List[np.ndarray]] = {"text": []}
        for kind in kinds:
            self._parts.update({f"{kind}_mask": [], f"{kind}_values": []})
        self._ends = dict.fromkeys(self._parts, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self, id: int, rank: int, source: Sequence[str], target: Sequence[str], weights: Dict[str, np.ndarray]
    ) -> None:
        """`weights`: for each kind in order, (L, H, queries, keys)."""
        text = json.dumps([list(source), list(target)], ensure_ascii=False).encode("utf-8", "surrogatepass")
        row = [id, rank, len(source), len(target)]
        row += [self._append("text", np.frombuffer(text, np.uint8)), zlib.crc32(text)]
        for kind, array in weights.items():
            mask, values = pack(array)
            row += [self._append(f"{kind}_mask", mask), self._append(f"{kind}_values", values)]
            row += [zlib.crc32(values, zlib.crc32(mask))]
        self._rows.append(tuple(row))

    def _append(self, member: str, part: np.ndarray) -> Tuple[int, int]:
        begin = self._ends[member]
        self._parts[member].append(part)
        self._ends[member] = begin + len(part)
        self.bytes += part.nbytes
        return begin, begin + len(part)

    def write(self, file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for member, parts in self._parts.items():
                _write_array(archive, member, parts, _dtype(member))
            _write_array(archive, "index", [np.array(self._rows, self.dtype)], self.dtype)


def _dtype(member: str) -> np.dtype:
    return np.dtype("<f4" if member.endswith("_values") else np.uint8)


def _write_array(archive: zipfile.ZipFile, name: str, parts: List[np.ndarray], dtype: np.dtype) -> None:
    """As np.savez of the concatenation would, without making it."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (sum(map(len, parts)),)}
    with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for part in parts:
            member.write(part.view(np.uint8))


class Segment:
    """A segment on disk. Opening it reads the index; a part of a sentence is read when asked for, and nothing else.

    No file is kept open, so a dump of a thousand segments can be read, pickled and forked.
    """

    def __init__(self, path: str, info: DumpInfo) -> None:
        self.path = path
        self._info = info
        self._arrays: Dict[str, int] = {}  # where an array's data begin in the file, once known
        try:
            with zipfile.ZipFile(path) as archive:
                self._headers = {member.filename: member.header_offset for member in archive.infolist()}
                # whole, because zipfile verifies its checksum at the end of a member only
                index = io.BytesIO(archive.read("index.npy"))
            self.index = np.lib.format.read_array(index, allow_pickle=False)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        except Exception as error:  # zipfile and numpy raise a dozen types on damaged bytes
            raise self._damaged(error) from None
        self._check_index()

    def _damaged(self, why: object) -> InputError:
        shard = self.path.rpartition("-")[0]
        return InputError(
            f"{self.path}: truncated or changed since it was written ({why}); restore it from a copy, "
            f"or delete {shard}-*.npz and generate again with --attn-dump-resume"
        )

    def _check_index(self) -> None:
        if self.index.dtype != index_dtype(self._info.kinds) or self.index.ndim != 1:
            raise InputError(f"{self.path}: not of this dump: its kinds of attention differ from those in dump.json")
        for kind, info in self._info.kinds.items():
            shape = info.shape(kind, self.index["source_length"], self.index["target_length"])
            begin, end = self.index[f"{kind}_mask"].T
            if np.any(end - begin != (shape[0] * shape[1] * shape[2] * shape[3] + 7) // 8):
                raise InputError(f"{self.path}: not of this dump: its layers and heads differ from those in dump.json")

    def tokens(self, row: np.void) -> Tuple[List[str], List[str]]:
        """(source, target) of a row of the index."""
        (text,) = self._read(row, "text", ["text"])
        source, target = json.loads(text.tobytes().decode("utf-8", "surrogatepass"))
        return source, target

    def weights(self, row: np.void, kind: str) -> np.ndarray:
        """(L, H, queries, keys) of a row of the index, float32."""
        mask, values = self._read(row, kind, [f"{kind}_mask", f"{kind}_values"])
        info = self._info.kinds[kind]
        return unpack(mask, values, info.shape(kind, int(row["source_length"]), int(row["target_length"])))

    def _read(self, row: np.void, what: str, members: List[str]) -> List[np.ndarray]:
        """The named parts of a row, their checksum verified."""
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
        """The offset of an array's first byte: behind the zip's header and numpy's, both of varying length."""
        if member not in self._arrays:
            file.seek(self._headers[member + ".npy"] + 26)
            name_length, extra_length = struct.unpack("<HH", file.read(4))
            file.seek(name_length + extra_length, 1)
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            self._arrays[member] = file.tell()
        return self._arrays[member]
