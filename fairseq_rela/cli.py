"""The `fairseq-rela` command: one table of subcommands, each a module that is imported only when it is called.

A subcommand's module has a docstring (its help), `add_arguments(parser)` and `run(args)`.
"""

import argparse
import importlib
import logging
import sys
from typing import List, Optional

from fairseq_rela import __version__
from fairseq_rela.errors import InputError

# name: (module, help in a line)
COMMANDS = {
    "user-dir": ("fairseq_rela.user_dir", "print the directory to give to fairseq's --user-dir"),
    "toy-corpus": ("fairseq_rela.corpus.command", "write a parallel corpus made by rule, with gold word alignments"),
    "dump-info": ("fairseq_rela.recording.dump_info", "say what is in an attention dump"),
    "dump-export": ("fairseq_rela.recording.export", "write a sentence of an attention dump for BertViz"),
    "analyze": ("fairseq_rela.analysis.analyze_command", "all of the paper's analyses of a dump, with a report"),
    "align": ("fairseq_rela.analysis.align_command", "word links from the cross attention in a dump"),
    "aer": ("fairseq_rela.analysis.aer_command", "score word links against gold links (alignment error rate)"),
    "filter": ("fairseq_rela.analysis.filter_command", "split a corpus by the quality of its pairs"),
    "average": ("fairseq_rela.averaging", "average the weights of several checkpoints into one"),
    "convert": ("fairseq_rela.conversion", "give a softmax checkpoint another attention, to train on from it"),
    "bench": ("fairseq_rela.bench.command", "measure speed and memory against stock fairseq and entmax"),
}


def _program(parser: argparse.ArgumentParser, argv: List[str]) -> argparse.Namespace:
    """Parse `argv`; only the chosen subcommand's module is imported."""
    chosen = next((word for word in argv if not word.startswith("-")), None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (module_name, help_line) in COMMANDS.items():
        if name != chosen:
            commands.add_parser(name, help=help_line, add_help=False)
            continue
        module = importlib.import_module(module_name)
        command = commands.add_parser(
            name,
            help=help_line,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser.parse_args(argv)


def main(argv: Optional[List[str]] = None) -> int:
    """Run a subcommand; 0, or 1 with one line on stderr for bad input, or 2 for bad usage."""
    parser = argparse.ArgumentParser(prog="fairseq-rela", description="Sparse attention for fairseq.")
    parser.add_argument("--version", action="version", version=f"fairseq-rela {__version__}")
    if argv is None:  # a process of its own: on import, fairseq logs what packages it would like, which nobody asked
        logging.getLogger("fairseq").setLevel(logging.WARNING)
    args = _program(parser, sys.argv[1:] if argv is None else argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        args.run(args)
    except InputError as error:
        print(f"fairseq-rela {args.command}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"fairseq-rela {args.command}: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"fairseq-rela {args.command}: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
