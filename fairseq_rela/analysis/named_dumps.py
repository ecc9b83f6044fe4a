"""The dumps of a comparison by the name of their model: `NAME=DUMP`, or a name made from the path."""

import os
from typing import Dict, List, Optional, Tuple

from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.errors import InputError

NamedDumps = Dict[str, List[DumpReader]]  # name of a model → its runs


def named_dumps(arguments: List[str], merge: str) -> NamedDumps:
    """The dumps by the name of their model: the name given, or as much of the path's end as is unique."""
    pairs = [split_name(argument) for argument in arguments]
    unnamed = [path for name, path in pairs if name is None]
    if len(set(unnamed)) < len(unnamed):
        twice = next(path for path in unnamed if unnamed.count(path) > 1)
        raise InputError(f"{twice}: given twice; seeds of one model are given as NAME=DUMP NAME=DUMP")
    dumps: NamedDumps = {}
    for name, path in pairs:
        dumps.setdefault(name or shortest_name(path, unnamed), []).append(DumpReader(path, merge))
    return dumps


def split_name(argument: str) -> Tuple[Optional[str], str]:
    """(NAME or None, path). A path that exists may contain an equals sign."""
    name, equals, path = argument.partition("=")
    return (name, path) if equals and name and not os.path.exists(argument) else (None, argument)


def shortest_name(path: str, paths: List[str]) -> str:
    """As much of the end of a path as tells it from the others of `paths`."""
    split = {each: os.path.normpath(os.path.abspath(each)).split(os.sep) for each in paths}
    for length in range(1, len(split[path])):
        end = split[path][-length:]
        if sum(parts[-length:] == end for parts in split.values()) == 1:
            return "/".join(end)
    return path


def other_dumps(arguments: List[str], dumps: NamedDumps, merge: str, flag: str) -> NamedDumps:
    """More dumps of the same models (`flag` says of what), by name: as given, or in the order of the models."""
    others: NamedDumps = {}
    unnamed = iter([name for name, runs in dumps.items() for _ in runs])
    for argument in arguments:
        name, path = split_name(argument)
        if name is None:
            name = next(unnamed, None)
        if name is None or name not in dumps:
            raise InputError(f"{flag} {argument}: does not belong to a model; the models are {', '.join(dumps)}")
        others.setdefault(name, []).append(DumpReader(path, merge))
    for name, runs in others.items():
        if len(runs) != len(dumps[name]):
            raise InputError(f"{flag}: {len(runs)} dumps for the {len(dumps[name])} of {name}; give one for each")
        for run, real in zip(runs, dumps[name]):
            if run.info.kinds != real.info.kinds:
                raise InputError(f"{run.path}: of another model than {real.path}; their kinds, layers or heads differ")
    return others
