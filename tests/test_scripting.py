"""TorchScript: the model and the beam search of every row that does not come from the entmax package."""

import io

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from fairseq_rela.attention.activations import ACTIVATIONS, FromEntmax
from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.errors import InputError

FROM_ENTMAX = [n for n, row in CATALOG.items() if isinstance(ACTIVATIONS[row.activation].build(), FromEntmax)]
SCRIPTABLE = [name for name in CATALOG if name not in FROM_ENTMAX]


@pytest.mark.parametrize("name", SCRIPTABLE)
def test_scripted_model_and_search_equal_the_plain_ones(build, batch, dictionary, name):
    model = build(f"transformer_{name}").eval()
    scripted = torch.jit.script(model)
    saved = io.BytesIO()
    torch.jit.save(scripted, saved)
    saved.seek(0)
    restored = torch.jit.load(saved)
    plain = model(**batch)[0]
    for version in (scripted, restored):
        out = version(batch["src_tokens"], batch["src_lengths"], batch["prev_output_tokens"])[0]
        assert torch.allclose(out, plain, atol=1e-5)

    sample = {"net_input": {k: batch[k] for k in ("src_tokens", "src_lengths")}}
    generator = SequenceGenerator([model], dictionary, beam_size=4, max_len_b=8)
    expected = generator.generate([model], sample)
    actual = torch.jit.script(generator)(sample)
    assert [[h["tokens"].tolist() for h in sentence] for sentence in actual] == [
        [h["tokens"].tolist() for h in sentence] for sentence in expected
    ]


@pytest.mark.parametrize("name", FROM_ENTMAX)
def test_entmaxs_functions_are_refused_in_one_clear_line(build, name):
    with pytest.raises(InputError) as error:
        torch.jit.script(build(f"transformer_{name}"))
    assert f"attention '{name}' cannot be scripted" in str(error.value)
    assert "\n" not in str(error.value)


def test_there_are_rows_of_both_sorts():
    assert FROM_ENTMAX == ["sparsemax", "entmax15"]
