"""Which figures `fairseq-rela analyze` draws, and where in the report each belongs."""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fairseq_rela.analysis import examples, heat_map, line_plots, plots
from fairseq_rela.analysis.alignment import layer_or_head
from fairseq_rela.analysis.links import Gold
from fairseq_rela.analysis.metrics import Models, RunMetrics
from fairseq_rela.analysis.named_dumps import NamedDumps
from fairseq_rela.analysis.reading import DumpReader
from fairseq_rela.analysis.report import FigureFile
from fairseq_rela.analysis.tally import SentenceLines
from fairseq_rela.dump.reader import Record
from fairseq_rela.dump.zeros import visible_positions

_SEARCHED_SENTENCES = 200  # the default heat map's sentence is among these
_FITTING_LENGTHS = range(6, 21)  # tokens of a sentence that fits a heat map


class _Figure(NamedTuple):
    """A figure before it is saved."""

    section: str
    file_name: str
    caption: str
    figure: Any


def line_figures(models: Models, directory: str) -> List[FigureFile]:
    """The figures by layer, by τ and by tag, written into `directory`."""
    figures = [_sparsity(models), *_nulls(models), *_diversity(models)]
    if any(model.rates.alignment for model in models.values()):
        plot = line_plots.alignment_error(models)
        figures.append(
            _Figure(
                "alignment", "alignment", "Alignment error rate by layer: solid best head, dashed layer attention", plot
            )
        )
    for name, model in models.items():
        by_tag = model.first.null_after_tags
        if by_tag:
            plot = heat_map.null_after_tags(name, by_tag)
            file_name = f"null_after_tags_{_safe_file_name(name)}"
            figures.append(_Figure("after-tags", file_name, f"{name}: null rate after tags", plot))
    return [
        FigureFile(plots.save(each.figure, directory, each.file_name)[1], each.caption, each.section)
        for each in figures
    ]


def _sparsity(models: Models) -> _Figure:
    plot = line_plots.by_layer(models, lambda rates: rates.sparsity, "sparsity rate")
    return _Figure("sparsity", "sparsity", "Sparsity rate by layer", plot)


def _nulls(models: Models) -> List[_Figure]:
    shuffled = any(model.rates.null_rate_shuffled for model in models.values())
    plot = line_plots.by_layer(
        models,
        lambda rates: rates.null_rate,
        "null rate",
        (lambda rates: rates.null_rate_shuffled) if shuffled else None,
        "shuffled",
    )
    caption = "Null rate by layer" + (", dashed on shuffled targets" if shuffled else "")
    variance = line_plots.by_layer(models, lambda rates: rates.null_rate_variance, "variance of null rate")
    return [
        _Figure("nulls", "null_rate", caption, plot),
        _Figure("nulls", "null_rate_variance", "Variance of the null rate over the heads of a layer", variance),
    ]


def _diversity(models: Models) -> List[_Figure]:
    plot = line_plots.by_layer(models, lambda rates: rates.diversity, "head diversity (nats)")
    by_tau = line_plots.diversity_by_tau(models)
    return [
        _Figure("diversity", "diversity", "Head diversity by layer", plot),
        _Figure("diversity", "diversity_tau", "Head diversity over τ, mean over layers", by_tau),
    ]


class HeatMapChoice(NamedTuple):
    """What a heat map shows: a sentence's id, a kind, the model's layer, a head (None: the mean of the heads)."""

    sentence: int
    kind: str
    layer: int
    head: Optional[int]


def check_heat_maps(choices: List[HeatMapChoice], dumps: NamedDumps) -> None:
    """InputError unless every model has all of `choices`."""
    for choice in choices:
        for runs in dumps.values():
            runs[0].require(choice.kind)
            runs[0].layer_index(choice.kind, choice.layer)
            if choice.head is not None:
                runs[0].check_head(choice.kind, choice.head)
            runs[0].dump.find(choice.sentence)


def default_heat_maps(
    reader: DumpReader, metrics: RunMetrics, tags: Optional[SentenceLines] = None
) -> List[HeatMapChoice]:
    """Figures 7 to 9: heads 0, 2, 3 and 7 of the third cross-attention layer, where there are so many, in a sentence
    with many null rows in heads that fire after a comma (see `examples`), or else in a short one. Then in the same
    sentence the head whose nulls tell most, the best aligner, and the last layer's mean. With tags, last the paper's
    heads in a sentence with many null rows in heads that fire after a verb."""
    kind = "cross" if "cross" in reader.info.kinds else next(iter(reader.info.kinds))
    layers = reader.info.kinds[kind].layers
    third = min(examples.THIRD_LAYER, len(layers) - 1)
    heads = [(third, head) for head in examples.paper_heads(reader.info.kinds[kind].heads)]
    heads += [(condition.layer, condition.head) for condition in (metrics.null_after_words or [])[:1]]
    if metrics.rates.alignment:
        by_head = metrics.rates.alignment["shifted"].heads
        heads.append(min((rate, (i, j)) for i, line in enumerate(by_head) for j, rate in enumerate(line))[1])
    example = examples.example_sentence(reader, third) if kind == "cross" else None
    sentence = (example or _short_sentence(reader)).id
    choices = [HeatMapChoice(sentence, kind, layers[layer], head) for layer, head in dict.fromkeys(heads)]
    choices.append(HeatMapChoice(sentence, kind, layers[-1], None))
    verbal = examples.example_sentence(reader, third, examples.verbs(tags.values)) if tags and kind == "cross" else None
    if verbal:
        shown = examples.paper_heads(reader.info.kinds[kind].heads)
        choices += [HeatMapChoice(verbal.id, kind, layers[third], head) for head in shown]
    return list(dict.fromkeys(choices))


def _short_sentence(reader: DumpReader) -> Record:
    """The first sentence that fits a heat map, or the first of all."""
    records = [reader[i] for i in range(min(len(reader), _SEARCHED_SENTENCES))]
    fitting = (
        record
        for record in records
        if record.target_length in _FITTING_LENGTHS and record.source_length in _FITTING_LENGTHS
    )
    return next(fitting, records[0])


def heat_maps(
    dumps: NamedDumps, choices: Dict[str, List[HeatMapChoice]], gold: Optional[SentenceLines], directory: str
) -> List[FigureFile]:
    """The heat maps of each model's first run, written into `directory`. `choices`: name of a model → what to draw."""
    return [
        _heat_map_file(name, runs[0], choice, gold, directory)
        for name, runs in dumps.items()
        for choice in choices[name]
    ]


def _heat_map_file(
    name: str, reader: DumpReader, choice: HeatMapChoice, gold: Optional[SentenceLines], directory: str
) -> FigureFile:
    record = reader.dump.find(choice.sentence)
    layer = reader.layer_index(choice.kind, choice.layer)
    weights = layer_or_head(reader.weights(record, choice.kind), layer, choice.head)
    rows, columns = heat_map.axis_labels(choice.kind, record.source, record.target)
    visible = visible_positions(choice.kind, *weights.shape)
    cells = linked_cells(reader, record, gold.values[record.id]) if gold and choice.kind == "cross" else []
    head = "mean of heads" if choice.head is None else f"head {choice.head}"
    description = f": sentence {choice.sentence}, {choice.kind}, layer {choice.layer}, {head}"
    figure = heat_map.heat_map(weights, rows, columns, plots.label(name) + description, visible, cells)
    head_name = "mean" if choice.head is None else f"head{choice.head}"
    file_name = f"heatmap_{_safe_file_name(name)}_{choice.sentence}_{choice.kind}_layer{choice.layer}_{head_name}"
    png, _ = plots.save(figure, directory, file_name)
    return FigureFile(png, name + description, "heatmaps")


def linked_cells(reader: DumpReader, record: Record, gold: Gold) -> List[Tuple[int, int]]:
    """(row, column) of every pair of pieces whose words are linked."""
    source, target = reader.source_words(record).of_piece, reader.target_words(record).of_piece
    return [
        (t, s)
        for t, target_word in enumerate(target.tolist())
        for s, source_word in enumerate(source.tolist())
        if (source_word, target_word) in gold.possible
    ]


def _safe_file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)[:80]
