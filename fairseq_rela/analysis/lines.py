"""Reading text files line by line. Errors name the file and the line."""

import gzip
import zlib
from functools import partial
from typing import IO, Iterator, Tuple, cast

from fairseq_rela.errors import InputError

LONGEST_LINE = 10_000_000  # bytes; a longer one is not a sentence, and /dev/zero would fill the memory
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def open_bytes(path: str) -> IO[bytes]:
    """`path`, open for reading, and decompressed if its name ends in .gz."""
    if str(path).endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    return open(path, "rb")


def raw_lines(path: str) -> Iterator[bytes]:
    """The lines of `path` without their line ends. Only a line feed ends a line; U+2028 and others are text."""
    with open_bytes(path) as stream:
        try:
            for number, line in enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 1):
                if len(line) == LONGEST_LINE:
                    raise InputError(f"{path}, line {number}: has {LONGEST_LINE} bytes or more; is this a text file?")
                if number == 1 and line.startswith(_BYTE_ORDER_MARKS):
                    raise InputError(f"{path}, line 1: begins with a byte-order mark; save it as UTF-8 without one")
                yield line.rstrip(b"\r\n")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{path}: not a complete gzip file ({error})") from None


def text_lines(path: str) -> Iterator[Tuple[int, str]]:
    """(line number from 1, line) of a UTF-8 file."""
    for number, line in enumerate(raw_lines(path), 1):
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start})") from None
