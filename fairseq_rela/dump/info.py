"""`dump.json`: the model, its kinds of attention, and how the dump was made."""

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Iterator, Optional, Tuple

from fairseq_rela import __version__
from fairseq_rela.dump.info_fields import check_fields, parsed_json
from fairseq_rela.errors import InputError
from fairseq_rela.inputs import require_file
from fairseq_rela.kinds import KINDS, check_kinds, keys_of, queries_of

FORMAT = 1
INFO_FILE = "dump.json"
GUIDED_LAYER = "guided_layer"  # in `options`: the layer whose head 0 was trained to align, read with the whole target
MOST_CHARACTERS = 1_000_000  # of dump.json; a real one has a few thousand


@dataclass(frozen=True)
class KindInfo:
    """One kind of attention, as recorded."""

    attention: str  # its name in the catalog, e.g. "rela_g"
    distribution: bool  # whether each row of weights sums to 1
    heads: int
    layers: Tuple[int, ...]  # the recorded layers, counted from 0, in the order of axis 0 of the weights
    model_layers: int  # how many layers the model has
    norms: bool = field(default=False, compare=False)  # whether norms are recorded, too; no property of the model

    def shape(self, kind: str, source_length: Any, target_length: Any) -> Tuple[Any, Any, Any, Any]:
        """(layers, heads, queries, keys) of a sentence's weights. Lengths are numbers, or arrays for many sentences."""
        lengths = {"source": source_length, "target": target_length}
        return len(self.layers), self.heads, lengths[queries_of(kind)], lengths[keys_of(kind)]


@dataclass(frozen=True)
class DumpInfo:
    """The content of `dump.json`. Two runs may write into one dump only if all of it is equal.

    `options` is any JSON that is the same for every shard. It says what another run needs to repeat this one.
    """

    model: str
    kinds: Dict[str, KindInfo]  # only the recorded kinds
    checkpoint_sha256: Optional[str] = None  # None: the model did not come from a file
    fairseq_version: Optional[str] = None
    plugin_version: str = __version__
    options: Dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kinds(self.kinds)
        if not self.kinds:
            raise InputError(f"a dump needs at least one kind of attention of {', '.join(KINDS)}")
        # the usual order, whatever order the caller used
        object.__setattr__(self, "kinds", {kind: self.kinds[kind] for kind in KINDS if kind in self.kinds})

    def to_json(self) -> str:
        fields = asdict(self)
        for row in fields["kinds"].values():
            if not row["norms"]:
                del row["norms"]  # as in the dumps of earlier versions, which did not know of norms
        return json.dumps({"format": FORMAT, **fields}, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "DumpInfo":
        """Raises ValueError if `text` is not the content of a dump.json. Every field is checked."""
        fields = parsed_json(text)
        if not isinstance(fields, dict) or "format" not in fields:
            raise ValueError("not the dump.json of a dump")
        if fields.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}, the one that fairseq-rela {__version__} reads")
        check_fields(fields)
        kinds = {kind: KindInfo(**{**row, "layers": tuple(row["layers"])}) for kind, row in fields["kinds"].items()}
        return cls(**{**fields, "kinds": kinds})


def read_info(directory: str) -> DumpInfo:
    """The `dump.json` of a dump."""
    path = os.path.join(directory, INFO_FILE)
    require_file(path)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
            if len(text) > MOST_CHARACTERS:
                raise ValueError(f"longer than {MOST_CHARACTERS} characters")
            return DumpInfo.from_json(text)
    except FileNotFoundError:
        raise InputError(f"{directory}: not an attention dump{_why_not(directory)}") from None
    except NotADirectoryError:
        raise InputError(f"{directory}: not an attention dump: it is a file, and a dump is a directory") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: damaged, or not of a dump ({error}); restore it from a copy") from None


def _why_not(directory: str) -> str:
    """Why a directory is not a dump, for the message."""
    if not os.path.isdir(directory):
        return ": there is no such directory"
    inner = sorted(name for name in os.listdir(directory) if os.path.isfile(os.path.join(directory, name, INFO_FILE)))
    if inner:
        return f", but it holds {len(inner)}; name one of them: {', '.join(inner)}"
    return f": it has no {INFO_FILE}"


def first_difference(there: DumpInfo, here: DumpInfo) -> Optional[Tuple[str, Any, Any]]:
    """(field, value there, value here) of the first field that differs, e.g. "kinds.cross.attention"; None if equal."""
    # Compared as JSON, because `there` was read from it: a tuple and a list are the same.
    left, right = (dict(_leaves("", json.loads(info.to_json()))) for info in (there, here))
    for name in {**left, **right}:
        if left.get(name) != right.get(name):
            return name, left.get(name), right.get(name)
    return None


def _leaves(prefix: str, value: Any) -> Iterator[Tuple[str, Any]]:
    """(dotted name, value) of everything in nested dictionaries."""
    if not isinstance(value, dict):
        yield prefix, value
        return
    for key, inner in value.items():
        yield from _leaves(f"{prefix}.{key}" if prefix else key, inner)
