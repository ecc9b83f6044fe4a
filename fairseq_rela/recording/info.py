"""What a dump says of itself, in `dump.json`: the model, its attention, and how the weights were made."""

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Iterator, Optional, Tuple

from fairseq_rela import __version__
from fairseq_rela.errors import InputError

FORMAT = 1
INFO_FILE = "dump.json"
KINDS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class KindInfo:
    """One kind of attention, as it was recorded."""

    attention: str  # its name in the catalogue, e.g. "rela_g"
    distribution: bool  # whether each row of weights sums to 1
    heads: int
    layers: Tuple[int, ...]  # the layers recorded, counted from 0: axis 0 of the weights, in this order
    model_layers: int  # how many the model has

    def shape(self, kind: str, source_length: int, target_length: int) -> Tuple[int, int, int, int]:
        """(layers, heads, queries, keys) of a sentence's weights."""
        queries = source_length if kind == "encoder" else target_length
        keys = target_length if kind == "decoder" else source_length
        return len(self.layers), self.heads, queries, keys


@dataclass(frozen=True)
class DumpInfo:
    """All of `dump.json`. `options` is any JSON, the same for every shard: what another run would need to repeat this.

    Two runs may write into one dump only if all of this is equal.
    """

    model: str
    kinds: Dict[str, KindInfo]  # only the kinds that were recorded, any of KINDS
    checkpoint_sha256: Optional[str] = None  # None: the model did not come from a file
    fairseq_version: Optional[str] = None
    plugin_version: str = __version__
    options: Dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(KINDS))
        if unknown:
            raise InputError(f"no such kind of attention: {', '.join(unknown)} (there are {', '.join(KINDS)})")
        if not self.kinds:
            raise InputError(f"a dump needs at least one kind of attention of {', '.join(KINDS)}")
        # one order everywhere, whatever order the caller named them in
        object.__setattr__(self, "kinds", {kind: self.kinds[kind] for kind in KINDS if kind in self.kinds})

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "DumpInfo":
        """Raises ValueError, TypeError or KeyError for what is not a dump's."""
        fields = json.loads(text)
        if not isinstance(fields, dict) or "format" not in fields:
            raise ValueError("not a dump's dump.json")
        if fields.pop("format") != FORMAT:
            raise ValueError(f"in another format than {FORMAT}, the one fairseq-rela {__version__} reads")
        kinds = {kind: KindInfo(**{**row, "layers": tuple(row["layers"])}) for kind, row in fields["kinds"].items()}
        return cls(**{**fields, "kinds": kinds})


def read_info(directory: str) -> DumpInfo:
    path = os.path.join(directory, INFO_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return DumpInfo.from_json(file.read())
    except FileNotFoundError:
        raise InputError(f"{directory}: not an attention dump{_why_not(directory)}") from None
    except NotADirectoryError:
        raise InputError(f"{directory}: not an attention dump: it is a file, and a dump is a directory") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: damaged, or not a dump's ({error}); restore it from a copy") from None


def _why_not(directory: str) -> str:
    """What is in the place of a dump, for the message."""
    if not os.path.isdir(directory):
        return ": there is no such directory"
    inner = sorted(name for name in os.listdir(directory) if os.path.isfile(os.path.join(directory, name, INFO_FILE)))
    if inner:
        return f", but it holds {len(inner)}; name one of them: {', '.join(inner)}"
    return f": it has no {INFO_FILE}"


def first_difference(there: DumpInfo, here: DumpInfo) -> Optional[Tuple[str, Any, Any]]:
    """(field, its value there, here) of the first field that differs, e.g. "kinds.cross.attention"; None if equal."""
    # compared as JSON, because what is there went through it: a tuple and a list are the same
    left, right = (dict(_leaves("", json.loads(info.to_json()))) for info in (there, here))
    for name in {**left, **right}:
        if left.get(name) != right.get(name):
            return name, left.get(name), right.get(name)
    return None


def _leaves(prefix: str, value: Any) -> Iterator[Tuple[str, Any]]:
    if not isinstance(value, dict):
        yield prefix, value
        return
    for key, inner in value.items():
        yield from _leaves(f"{prefix}.{key}" if prefix else key, inner)
