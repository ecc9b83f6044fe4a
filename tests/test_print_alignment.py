"""`--print-alignment` of fairseq's commands: a word that attends to nothing has no link."""

import pytest
import torch
from fairseq import utils
from fairseq.sequence_generator import SequenceGeneratorWithAlignment

from fairseq_rela.fairseq_patches import apply_patches
from fairseq_rela.recording.recorder import record_attention

PAD, EOS = 1, 2
SOURCE = torch.tensor([PAD, 4, 5, 6, EOS])  # padded on the left
TARGET = torch.tensor([7, 8, 9, EOS, PAD])


def links(rows, source=SOURCE, target=TARGET):
    return utils.extract_hard_alignment(torch.tensor(rows), source, target, PAD, EOS)


@pytest.mark.parametrize(
    "rows, expected",
    [
        # each row: weights on <pad>, three words, </s>; the last two rows are those of </s> and <pad>
        ([[0, 0, 1, 0, 0], [0, 2, 1, 0, 9], [0, 0, 0, 3, 0]], [(1, 0), (0, 1), (2, 2)]),
        ([[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 3, 0]], [(1, 0), (2, 2)]),  # a null row
        ([[0, 0, 0, 0, 5], [7, 0, 0, 0, 0], [0, 0, 0, 3, 0]], [(2, 2)]),  # only </s>, only <pad>
        ([[0, 0, 0, 0, 0]] * 3, []),
        ([[0, -3, -1, -2, 0], [0, 1e-45, 0, 0, 0], [0, 0, 0, 0, 0]], [(1, 0), (0, 1)]),  # not 0, whatever they are
    ],
)
def test_by_hand(plugin, rows, expected):
    rows = [[float(weight) for weight in row] for row in rows]
    assert links([*rows, [1.0] * 5, [1.0] * 5]) == expected


def test_nothing_to_link(plugin):
    nothing = torch.tensor([EOS])
    assert links([[1.0]], source=nothing, target=nothing) == []
    assert links([[1.0, 0.0]], source=torch.tensor([4, EOS]), target=nothing) == []


def test_patched_once(plugin):
    before = utils.extract_hard_alignment
    apply_patches()
    assert utils.extract_hard_alignment is before


@pytest.mark.parametrize("arch", ["transformer_rela_g", "transformer_softmax", "transformer"])
@torch.no_grad()
def test_in_a_beam_search(build, dictionary, batch, arch):
    """The links of every hypothesis are those of its attention, computed once more on the whole hypothesis."""
    model = build(arch)
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.3)
    model.eval()
    generator = SequenceGeneratorWithAlignment([model], dictionary, beam_size=3, max_len_a=0, max_len_b=8)
    sample = {"net_input": {name: batch[name] for name in ("src_tokens", "src_lengths")}}
    nulls = linked = 0
    for source, hypotheses in zip(batch["src_tokens"], generator.generate([model], sample)):
        source = source[source.ne(PAD)]
        for hypothesis in hypotheses:
            target = hypothesis["tokens"]
            previous = torch.cat([target[-1:], target[:-1]]).unsqueeze(0)
            with record_attention(model, ["cross"], [-1]) as rec:
                model(source.unsqueeze(0), torch.tensor([len(source)]), previous)
            weights = rec.cross[0, :, 0].mean(dim=0)[:-1, :-1]  # without the rows and columns of </s>
            expected = [(int(row.argmax()), t) for t, row in enumerate(weights) if row.any()]
            assert hypothesis["alignment"] == expected
            nulls, linked = nulls + len(weights) - len(expected), linked + len(expected)
    assert linked > 0 and (nulls > 0) == (arch == "transformer_rela_g")
