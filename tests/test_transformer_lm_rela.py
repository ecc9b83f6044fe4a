"""Language models: every architecture, causal, incremental as in full, through fairseq's own workflow."""

import argparse

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq_cli import eval_lm
from fairseq_runs import command

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.cli import main as fairseq_rela

each_row = pytest.mark.parametrize("name", CATALOG)


@pytest.fixture
def build_lm(dictionary):
    def build(arch, **flags):
        args = argparse.Namespace(decoder_layers=2, decoder_embed_dim=16, decoder_attention_heads=2, **flags)
        ARCH_CONFIG_REGISTRY[arch](args)
        torch.manual_seed(1)
        task = argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
        return ARCH_MODEL_REGISTRY[arch].build_model(args, task)

    return build


@pytest.mark.parametrize("size", ["", "_base", "_big", "_iwslt_de_en", "_tiny"])
def test_every_architecture_of_the_contract_is_registered(size):
    for name in CATALOG:
        assert f"transformer_lm_{name}{size}" in ARCH_CONFIG_REGISTRY


@each_row
def test_a_word_depends_on_those_before_it_alone_and_incrementally_too(build_lm, name):
    model = build_lm(f"transformer_lm_{name}").eval()
    assert {layer.self_attn.name for layer in model.decoder.layers} == {name}
    tokens = torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 10, 11]])
    full = model(tokens)[0]
    changed = tokens.clone()
    changed[:, 3] = 12
    assert torch.allclose(model(changed)[0][:, :3], full[:, :3], atol=1e-6)
    assert not torch.allclose(model(changed)[0][:, 3:], full[:, 3:], atol=1e-3)
    state = {}
    for t in range(5):
        step = model(tokens[:, : t + 1], incremental_state=state)[0]
        assert torch.allclose(step[:, 0], full[:, t], atol=1e-5)


def test_softmax_has_the_parameters_of_stock_and_computes_the_same(build_lm):
    ours = build_lm("transformer_lm_softmax").eval()
    stock = build_lm("transformer_lm_gpt", decoder_ffn_embed_dim=2048, activation_fn="relu").eval()
    ours.load_state_dict(stock.state_dict(), strict=True)
    tokens = torch.tensor([[2, 4, 5, 6, 7]])
    assert torch.allclose(ours(tokens)[0], stock(tokens)[0], atol=1e-5)


def test_train_and_evaluate(tmp_path, capsys):
    text, data = tmp_path / "text", tmp_path / "bin"
    sizes = ["--train", "150", "--valid", "20", "--test", "20", "--lexicon", "50", "--max-clauses", "1"]
    assert fairseq_rela(["toy-corpus", str(text), *sizes]) == 0
    files = [f"--{split}pref={text / split}.tgt" for split in ("train", "valid", "test")]
    command("fairseq-preprocess", "--only-source", *files, "--destdir", data)
    flags = ["--task", "language_modeling", "--tokens-per-sample", 64, "--sample-break-mode", "eos"]
    save = tmp_path / "save"
    arguments = f"{data} --save-dir {save} --arch transformer_lm_rela_g_tiny --decoder-layers 1 --cpu --max-update 8"
    arguments += " --optimizer adam --lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 5 --max-tokens 400"
    command("fairseq-train", *arguments.split(), *flags, "--user-dir", "fairseq_rela")
    evaluate = [str(data), "--path", str(save / "checkpoint_last.pt"), "--cpu", "--max-tokens", "400"]
    args = options.parse_args_and_arch(options.get_eval_lm_parser(), [*evaluate, *map(str, flags)])
    result = eval_lm.main(convert_namespace_to_omegaconf(args))
    assert 0 < result["loss"] < 12
