"""Type a sentence and see what a model attends to, on a page in your browser.

    fairseq-rela explore --path average.pt data-bin --sentencepiece-model spm.model
    fairseq-rela explore --path rela=a.pt --compare softmax=b.pt data-bin --sentencepiece-model spm.model
    fairseq-rela explore --path average.pt data-bin --text "a sentence" --out page.html    # a page to keep

The page shows the translation, the n best, and every attention as a heat map and as lines between words: by kind,
layer and head. You can force a target of your own, see two models side by side, and save pictures as SVG or PNG.
It works with every Transformer of fairseq, softmax too, and with language models. The server answers this machine only
(127.0.0.1), needs no network, and ends with Ctrl-C. Without --sentencepiece-model, type the model's pieces.
"""

import argparse
import threading
import urllib.parse
import webbrowser
from typing import Any, Dict, List

from fairseq_rela.analysis.explorer import model_data
from fairseq_rela.analysis.named_dumps import shortest_name, split_name
from fairseq_rela.atomic import write_atomically
from fairseq_rela.errors import InputError
from fairseq_rela.explore.answering import Answering, Deadline, Queue, checked_request
from fairseq_rela.explore.loading import load_model
from fairseq_rela.explore.pages import kept_page, live_page
from fairseq_rela.explore.segmenting import Segmenter
from fairseq_rela.explore.server import ExplorerServer
from fairseq_rela.explore.translating import Translator

PORT = 8642
_WAITING = 4  # requests that wait while one is answered
_LONGEST = 1000  # tokens; a page with more would be too slow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA-BIN", help="the directory that fairseq-preprocess made")
    parser.add_argument("--path", required=True, metavar="[NAME=]FILE", help="the model's checkpoint")
    parser.add_argument("--compare", metavar="[NAME=]FILE", help="a second model, to see side by side with the first")
    parser.add_argument(
        "--sentencepiece-model", metavar="FILE", help="splits what you type; without it, type the model's pieces"
    )
    parser.add_argument("--text", metavar="TEXT", action="append", default=[], help="the sentence to begin with")
    parser.add_argument(
        "--out", metavar="FILE", help="write a page with the sentences of --text to FILE (.html), and start no server"
    )
    parser.add_argument("--beam", type=int, default=5, help="beam size of the search (5)")
    parser.add_argument("--longest", type=int, default=200, metavar="N", help="most tokens of a sentence (200)")
    server = parser.add_argument_group("server")
    server.add_argument("--port", type=int, default=PORT, help=f"port on 127.0.0.1; 0 takes any that is free ({PORT})")
    server.add_argument("--no-browser", action="store_true", help="open no browser; only print the address")
    server.add_argument(
        "--time-limit", type=float, default=30.0, metavar="SECONDS", help="for one sentence, and for waiting (30)"
    )


def run(args: argparse.Namespace) -> None:
    _check(args)
    if args.out:
        _write_page(args)
        return
    server = ExplorerServer(args.port)  # before the models are loaded, because the port may be in use
    try:
        translators = _translators(args)
        server.page = live_page(_models(translators), translators[0].loaded.is_language_model)
        server.answer = Answering(translators, Queue(_WAITING, args.time_limit), translators[0].hint)
        address = server.address + (f"#text={urllib.parse.quote(args.text[0])}" if args.text else "")
        print(f"{address}\nCtrl-C ends it.", flush=True)
        if not args.no_browser:
            # In a thread, because a browser in the terminal returns only when it is closed.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.serve_forever()
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        server.server_close()


def _check(args: argparse.Namespace) -> None:
    for name, least, most in (("beam", 1, 100), ("longest", 2, _LONGEST), ("time_limit", 0.1, 3600)):
        if not least <= getattr(args, name) <= most:
            raise InputError(f"--{name.replace('_', '-')} is {getattr(args, name)}; give {least} to {most}")
    if args.out and not args.text:
        raise InputError("--out writes the sentences of --text; give --text TEXT, too")


def _translators(args: argparse.Namespace) -> List[Translator]:
    segmenter = Segmenter(args.sentencepiece_model)
    named = [split_name(argument) for argument in (args.path, args.compare) if argument]
    paths = [path for _, path in named]
    loaded = [load_model(name or shortest_name(path, paths), path, args.data) for name, path in named]
    if len({each.is_language_model for each in loaded}) > 1:
        raise InputError(f"{args.compare}: a language model and a translation model cannot be compared")
    return [Translator(each, segmenter, args.beam, args.longest) for each in loaded]


def _models(translators: List[Translator]) -> List[Dict[str, Any]]:
    return [model_data(each.loaded.name, each.loaded.kinds) for each in translators]


def _write_page(args: argparse.Namespace) -> None:
    translators = _translators(args)
    models = _models(translators)
    for number, text in enumerate(args.text, 1):
        request = checked_request({"text": text})
        for translator, model in zip(translators, models):
            answer = translator.answer(request.text, "", 1, Deadline(args.time_limit))
            model["sentences"] += [{**sentence, "label": str(number)} for sentence in answer.sentences]
    content = kept_page(models)
    write_atomically(args.out, lambda file: file.write(content))
    print(f"{len(args.text)} sentence{'s' if len(args.text) > 1 else ''}: {args.out}")
