"""The `fairseq-rela` command. Each subcommand is a module in `commands`; only the one that is called is imported."""

import argparse
import contextlib
import importlib
import io
import logging
import os
import re
import sys
from typing import List, Optional

from fairseq_rela import __version__
from fairseq_rela.atomic import NO_SPACE
from fairseq_rela.errors import InputError

COMMANDS = {  # name: help in one line. The module `commands.NAME` has the rest.
    "user-dir": "print the directory to give to fairseq's --user-dir",
    "toy-corpus": "write a parallel corpus made by rule, with gold word alignments",
    "dump-info": "show what is in an attention dump",
    "dump-export": "write a sentence of an attention dump for BertViz",
    "analyze": "analyse dumps as the paper does, with a report",
    "explore": "type sentences and see a model's attention, in the browser",
    "align": "get word links from the cross attention in a dump",
    "piece-links": "turn links between words into links between subword pieces",
    "aer": "score word links against gold links (alignment error rate)",
    "tag-transfer": "carry inline tags over to a translation, along word links",
    "filter": "split a corpus by the quality of its sentence pairs",
    "average": "average the weights of several checkpoints into one",
    "convert": "give a softmax checkpoint another attention, to continue training from it",
    "bench": "measure speed and memory against stock fairseq and entmax",
}

EXTRAS = {  # package that may be missing: what installs it
    "torch": "train",
    "entmax": "train",
    "sentencepiece": "train",
    "fairseq": "fairseq",
    "omegaconf": "fairseq",
    "hydra": "fairseq",
    "matplotlib": "figures",
}


def _chosen(argv: List[str]) -> Optional[str]:
    """The subcommand: the first word that is not a flag."""
    return next((word for word in argv if not word.startswith("-")), None)


def _parsed(parser: argparse.ArgumentParser, argv: List[str]) -> argparse.Namespace:
    """Parse `argv`; only the chosen subcommand's module is imported."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, help_line in COMMANDS.items():
        if name != _chosen(argv):
            commands.add_parser(name, help=help_line, add_help=False)
            continue
        module = importlib.import_module(f"fairseq_rela.commands.{name.replace('-', '_')}")
        command = commands.add_parser(
            name,
            help=help_line,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser.parse_args(argv)


def _run(argv: List[str]) -> None:
    parser = argparse.ArgumentParser(prog="fairseq-rela", description="Sparse attention for fairseq.")
    parser.add_argument("--version", action="version", version=f"fairseq-rela {__version__}")
    try:
        args = _parsed(parser, argv)
        if args.command is None:
            parser.print_help()
        else:
            args.run(args)
    finally:
        if sys.stdout is not None:  # it is None if the process was started with it closed
            sys.stdout.flush()  # here, because an error at the end of the process would be a traceback


def main(argv: Optional[List[str]] = None) -> int:
    """Run a subcommand. Returns 0, or 1 after one line on stderr for bad input. Bad usage exits with 2."""
    is_process = argv is None
    if is_process:
        # On import, fairseq logs which optional packages are missing.
        logging.getLogger("fairseq").setLevel(logging.WARNING)
        _print_any_character()
    words = sys.argv[1:] if argv is None else argv
    try:
        _run(words)
        return 0
    except BrokenPipeError:  # the reader of the output, such as `head`, has read enough
        message, status = None, 0
    except KeyboardInterrupt:
        message, status = "interrupted", 130
    except (InputError, OSError, ImportError, MemoryError) as error:
        message, status = _explained(error), 1
        if message is None:
            raise
    if is_process:
        _discard_output()
    if message:
        print(f"fairseq-rela {_chosen(words) or ''}".rstrip() + f": {_visible(message)}", file=sys.stderr)
    return status


def _explained(error: Exception) -> Optional[str]:
    """One line for an error that a user can fix. None for an error in this package, which gets a traceback."""
    if isinstance(error, MemoryError):
        return "not enough memory; give less at once, or use a machine with more"
    if isinstance(error, OSError):
        # An error in writing a file names the file. Without a name it is an error in writing to standard output.
        output = "standard output" if error.errno in NO_SPACE else None
        name = "the name of a file is empty" if error.filename == "" else error.filename or output
        return f"{name}: {error.strerror or error}" if name else f"{error.strerror or error}"
    if isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            return None
        return (
            f"needs {package}, which is not installed: bash examples/setup_env.sh, or in this repository "
            f'pip install ".[{EXTRAS[package]}]" (see docs/installation.md)'
        )
    return str(error)


def _visible(message: str) -> str:
    """The message in one line: control characters, which may be in the name of a file, as escapes."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda match: ascii(match[0])[1:-1], message)


def _print_any_character() -> None:
    """Let characters that the terminal's encoding does not have be printed as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A stream whose file was replaced may refuse. It is then used as it is.
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Discard what is still in the buffer, because Python would try again to write it when it exits."""
    with contextlib.suppress(OSError, AttributeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
