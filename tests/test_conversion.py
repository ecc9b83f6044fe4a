"""fairseq-rela convert: stock checkpoints of every fairseq version are converted; other files end in one line."""

import argparse
import json
import os
import shlex
import subprocess

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm, train
from fairseq_runs import (
    ROOT,
    corpus,
    environment,
    fairseq_generate,
    fairseq_train,
    language_model_data,
    tagged,
)
from test_stacks import OTHER

from fairseq_rela.attention.norms import RMSNorm
from fairseq_rela.cli import main
from fairseq_rela.conversion import heads_rms, initialise_norms
from fairseq_rela.models.layers import FUSED_COPIES

# sizes that no architecture has, each side with its own
SMALL = """
    --encoder-embed-dim 32 --encoder-ffn-embed-dim 48 --encoder-attention-heads 2 --encoder-layers 2
    --decoder-embed-dim 24 --decoder-ffn-embed-dim 40 --decoder-attention-heads 3 --decoder-layers 1
    --encoder-normalize-before --encoder-learned-pos --max-source-positions 64 --activation-fn gelu
""".split()
SMALL_LM = "--decoder-embed-dim 32 --decoder-ffn-embed-dim 48 --decoder-attention-heads 2 --decoder-layers 1".split()
TRAINING = """
    --cpu --optimizer adam --lr-scheduler fixed --max-tokens 400 --required-batch-size-multiple 1 --num-workers 0
""".split()
LM = "--task language_modeling --tokens-per-sample 64 --sample-break-mode eos".split()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("pairs"), "--train", 60, "--valid", 8, "--test", 8)


@pytest.fixture(scope="module")
def stock(data, tmp_path_factory):
    """fairseq's own Transformer after 3 updates."""
    save = tmp_path_factory.mktemp("stock")
    fairseq_train(data, save, "--max-update", 3, *SMALL, arch="transformer")
    return save / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def lm_data(data):
    return language_model_data(data.parent, data.parent / "text")


@pytest.fixture(scope="module")
def stock_lm(lm_data, tmp_path_factory):
    save = tmp_path_factory.mktemp("stock_lm")
    run_training(lm_data, save, "--lr", 0.005, "--max-update", 3, *LM, "--arch", "transformer_lm", *SMALL_LM)
    return save / "checkpoint_last.pt"


def run_training(data, save, *flags):
    """fairseq-train with these flags and no others for the model."""
    arguments = [str(data), "--save-dir", str(save), *TRAINING, *map(str, flags)]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    train.main(convert_namespace_to_omegaconf(args))


def load(path):
    return torch.load(str(path), map_location="cpu")


def parameters(path):
    """A checkpoint's, without what fairseq 0.12.2 adds to them."""
    added = (*FUSED_COPIES, "_float_tensor")
    return {name: weight for name, weight in load(path)["model"].items() if name.split(".")[-1] not in added}


def convert(capsys, source, to, output):
    """The flags that fairseq-train is to be given."""
    assert main(["convert", "--from", str(source), "--to", to, "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    words = shlex.split(printed.splitlines()[1])
    assert words[:2] == ["fairseq-train", "DATA"] and words[-5:-3] == ["--finetune-from-model", str(output)]
    assert words[-3:] == ["--required-batch-size-multiple", "1", "…"]
    return words[4:-1]


def same(a, b):
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in b)


def outputs(path, data, *sentences):
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(data)})
    tokens = [torch.tensor(sentence) for sentence in sentences]
    if len(tokens) == 2:
        return model.eval()(tokens[0], torch.tensor([len(sentence) for sentence in sentences[0]]), tokens[1])[0]
    return model.eval()(tokens[0])[0]


def lm_loss(path, data):
    arguments = [str(data), "--path", str(path), "--cpu", "--max-tokens", "400", *LM]
    args = options.parse_args_and_arch(options.get_eval_lm_parser(), arguments)
    return float(eval_lm.main(convert_namespace_to_omegaconf(args))["loss"])


SENTENCES = [[4, 5, 6, 7, 2], [1, 8, 9, 10, 2]], [[2, 4, 5], [2, 6, 7]]


def test_to_softmax_computes_what_stock_does(data, stock, tmp_path, capsys):
    convert(capsys, stock, "softmax", tmp_path / "softmax.pt")
    before, after = load(stock), load(tmp_path / "softmax.pt")
    assert same(after["model"], parameters(stock))
    assert "last_optimizer_state" in before and "last_optimizer_state" not in after
    ours = outputs(tmp_path / "softmax.pt", data, *SENTENCES)
    assert torch.allclose(ours, outputs(stock, data, *SENTENCES), atol=1e-5)


@pytest.mark.parametrize("to", ["rela_g", "rela_i", "relu", "rela_g_layernorm", "rela_g_cross_only"])
def test_training_goes_on_from_these_weights_with_the_flags_that_are_printed(data, stock, tmp_path, capsys, to):
    flags = convert(capsys, stock, to, tmp_path / "warm.pt")
    converted, old = load(tmp_path / "warm.pt")["model"], parameters(stock)
    new = {name for name in converted if name not in old}
    assert same({name: weight for name, weight in converted.items() if name not in new}, old)
    assert all(".norm." in name for name in new) and bool(new) == (to != "relu")
    assert any("encoder_attn.norm" in name for name in new) == (to != "relu")
    assert any("self_attn.norm" in name for name in new) == (to not in ("relu", "rela_g_cross_only"))
    run_training(data, tmp_path / "save", *flags, "--lr", 1e-9, "--max-update", 1)
    trained = parameters(tmp_path / "save" / "checkpoint_last.pt")
    assert trained.keys() == converted.keys()
    assert all(torch.allclose(trained[name], weight, atol=1e-6) for name, weight in converted.items())
    assert load(tmp_path / "save" / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 1


def test_the_result_translates(data, stock, tmp_path, capsys):
    convert(capsys, stock, "rela_g", tmp_path / "warm.pt")
    hypotheses = tagged(fairseq_generate(data, tmp_path / "warm.pt"), "H")
    assert sorted(hypotheses) == list(range(8)) and all(float(score) < 0 for score, _ in hypotheses.values())


def test_the_default_output_is_beside_the_source_and_always_the_same(stock, tmp_path, capsys):
    (tmp_path / "softmax.pt").write_bytes(stock.read_bytes())
    for _ in range(2):
        assert main(["convert", "--from", str(tmp_path / "softmax.pt"), "--to", "rela_g"]) == 0
        os.rename(str(tmp_path / "softmax.rela_g.pt"), str(tmp_path / f"{len(os.listdir(str(tmp_path)))}.pt"))
    assert same(load(tmp_path / "2.pt")["model"], load(tmp_path / "3.pt")["model"])


@pytest.mark.slow
def test_language_models(lm_data, stock_lm, tmp_path, capsys):
    convert(capsys, stock_lm, "softmax", tmp_path / "softmax.pt")
    assert lm_loss(tmp_path / "softmax.pt", lm_data) == pytest.approx(lm_loss(stock_lm, lm_data), abs=1e-4)
    flags = convert(capsys, stock_lm, "rela_g", tmp_path / "warm.pt")
    assert 0 < lm_loss(tmp_path / "warm.pt", lm_data) < 12
    run_training(lm_data, tmp_path / "save", *flags, "--lr", 1e-9, "--max-update", 1)
    trained, converted = (parameters(tmp_path / path) for path in ("save/checkpoint_last.pt", "warm.pt"))
    assert trained.keys() == converted.keys()
    assert all(torch.allclose(trained[name], weight, atol=1e-6) for name, weight in converted.items())


def test_a_language_model_with_adaptive_input_and_softmax(lm_data, tmp_path, capsys):
    adaptive = "--adaptive-input --adaptive-input-cutoff 20,40 --adaptive-softmax-cutoff 20,40".split()
    loss = ["--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp", "--lr", 1e-9]
    arch = ["--arch", "transformer_lm_wiki103", *SMALL_LM, "--decoder-input-dim", 32, "--decoder-output-dim", 32]
    run_training(lm_data, tmp_path, *loss, *LM, *arch, *adaptive, "--max-update", 1)
    flags = convert(capsys, tmp_path / "checkpoint_last.pt", "rela_g", tmp_path / "warm.pt")
    run_training(lm_data, tmp_path / "save", *flags, *loss, "--max-update", 1)
    trained, converted = (parameters(tmp_path / path) for path in ("save/checkpoint_last.pt", "warm.pt"))
    assert trained.keys() == converted.keys() and "decoder.embed_tokens.embeddings.2.0.weight" in trained
    assert all(torch.allclose(trained[name], weight, atol=1e-6) for name, weight in converted.items())


def old_style(checkpoint, **flags):
    """The checkpoint as fairseq before 0.10 wrote it: flags in `args`, no `cfg`."""
    model = checkpoint["cfg"]["model"]
    args = dict(vars(model)) if isinstance(model, argparse.Namespace) else {**checkpoint["cfg"]["task"], **model}
    args.pop("_name")
    rest = {name: part for name, part in checkpoint.items() if name != "cfg"}
    return {**rest, "args": argparse.Namespace(**{**args, **flags})}


@pytest.mark.slow
def test_old_checkpoints_with_args(data, stock, lm_data, stock_lm, tmp_path, capsys):
    torch.save(old_style(load(stock)), str(tmp_path / "old.pt"))
    convert(capsys, stock, "rela_g", tmp_path / "of_new.pt")
    convert(capsys, tmp_path / "old.pt", "rela_g", tmp_path / "of_old.pt")
    assert same(load(tmp_path / "of_old.pt")["model"], load(tmp_path / "of_new.pt")["model"])
    of_old, of_new = (outputs(tmp_path / name, data, *SENTENCES) for name in ("of_old.pt", "of_new.pt"))
    assert torch.equal(of_old, of_new)
    old = old_style(load(stock_lm), arch="transformer_lm", task="language_modeling")
    torch.save(old, str(tmp_path / "old_lm.pt"))
    convert(capsys, tmp_path / "old_lm.pt", "softmax", tmp_path / "new_lm.pt")
    assert lm_loss(tmp_path / "new_lm.pt", lm_data) == pytest.approx(lm_loss(stock_lm, lm_data), abs=1e-4)


def test_the_second_copies_of_fairseq_0_12_2_are_left_out(stock, tmp_path, capsys):
    checkpoint = load(stock)
    for copy in FUSED_COPIES:
        checkpoint["model"][f"encoder.layers.0.{copy}"] = torch.ones(1)
    torch.save(checkpoint, str(tmp_path / "fused.pt"))
    convert(capsys, tmp_path / "fused.pt", "rela_g", tmp_path / "warm.pt")
    assert not any(name.split(".")[-1] in FUSED_COPIES for name in load(tmp_path / "warm.pt")["model"])


def test_half_precision_is_kept(stock, tmp_path, capsys):
    checkpoint = load(stock)
    checkpoint["model"] = {name: weight.half() for name, weight in checkpoint["model"].items()}
    torch.save(checkpoint, str(tmp_path / "half.pt"))
    convert(capsys, tmp_path / "half.pt", "rela_g", tmp_path / "warm.pt")
    assert {weight.dtype for weight in load(tmp_path / "warm.pt")["model"].values()} == {torch.float16}


def test_other_models_with_the_parameters_of_a_transformer_are_taken(data, tmp_path, capsys):
    fairseq_train(data, tmp_path, "--max-update", 1, *SMALL, arch="transformer_wmt_en_de")
    convert(capsys, tmp_path / "checkpoint_last.pt", "rela_g", tmp_path / "warm.pt")
    aligned = load(tmp_path / "checkpoint_last.pt")
    aligned["cfg"]["model"]._name = aligned["cfg"]["model"].arch = "transformer_align"
    torch.save(aligned, str(tmp_path / "align.pt"))
    convert(capsys, tmp_path / "align.pt", "rela_g", tmp_path / "warm_align.pt")
    assert same(load(tmp_path / "warm.pt")["model"], load(tmp_path / "warm_align.pt")["model"])


@pytest.mark.parametrize("to", ["relu_rmsnorm", "rela_g"])
def test_new_heads_are_as_large_as_those_of_softmax(build, to):
    softmax, model = build("transformer_softmax"), build(f"transformer_{to}")
    with torch.no_grad():
        softmax.encoder.layers[1].self_attn.v_proj.weight.mul_(20)
    rms = heads_rms(softmax, 34, 34)
    initialise_norms(model, rms)
    assert set(rms) == {f"{side}.layers.{i}.self_attn" for side in ("encoder", "decoder") for i in (0, 1)} | {
        f"decoder.layers.{i}.encoder_attn" for i in (0, 1)
    }
    assert rms["encoder.layers.1.self_attn"] > 5 * rms["encoder.layers.0.self_attn"]
    for place, size in rms.items():
        norm = dict(model.named_modules())[f"{place}.norm"]
        assert norm(torch.randn(100, 16)).pow(2).mean().sqrt().item() == pytest.approx(size, rel=1e-3)
        assert isinstance(norm, RMSNorm) == (to == "relu_rmsnorm")


# What is refused


def refused(capsys, tmp_path, source, to="rela_g", **paths):
    """The one line on stderr. The existing output must be unchanged, and no other file may be left."""
    output = paths.get("output", tmp_path / "out.pt")
    (tmp_path / "out.pt").write_bytes(b"precious")
    before = sorted(os.listdir(str(tmp_path)))
    capsys.readouterr()
    assert main(["convert", "--from", str(source), "--to", to, "--output", str(output)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("fairseq-rela convert: ")
    assert (tmp_path / "out.pt").read_bytes() == b"precious" and sorted(os.listdir(str(tmp_path))) == before
    return said


def test_bad_values_are_told_in_a_line(stock, stock_lm, tmp_path, capsys):
    assert "missing.pt: no such checkpoint file" in refused(capsys, tmp_path, tmp_path / "missing.pt")
    (tmp_path / "cut.pt").write_bytes(stock.read_bytes()[:5000])
    assert "cut.pt: not a complete checkpoint" in refused(capsys, tmp_path, tmp_path / "cut.pt")
    torch.save({"model": {"w": torch.ones(1)}}, str(tmp_path / "bare.pt"))
    assert "does not say what its model is" in refused(capsys, tmp_path, tmp_path / "bare.pt")
    assert "unknown attention 'rela'; known are softmax, sparsemax" in refused(capsys, tmp_path, stock, "rela")
    assert "is a language model, for which there is no rela_g_cross_only" in refused(
        capsys, tmp_path, stock_lm, "rela_g_cross_only"
    )
    assert "does not exist" in refused(capsys, tmp_path, stock, output=tmp_path / "none" / "out.pt")
    assert "is the checkpoint to convert" in refused(capsys, tmp_path, tmp_path / "out.pt")
    fairseq_flags = old_style(load(stock), arch="of_another_plugin")
    torch.save(fairseq_flags, str(tmp_path / "unknown.pt"))
    assert "'of_another_plugin'" in refused(capsys, tmp_path, tmp_path / "unknown.pt")


def test_what_is_no_softmax_transformer_is_told_in_a_line(data, stock, tmp_path, capsys):
    fairseq_train(data, tmp_path / "rela", "--max-update", 1, arch="transformer_rela_g_cross_only_tiny")
    said = refused(capsys, tmp_path, tmp_path / "rela" / "checkpoint_last.pt")
    assert "its cross attention is rela_g; only softmax is converted" in said
    run_training(data, tmp_path / "lstm", "--arch", "lstm", "--lr", 0.1, "--max-update", 1)
    said = refused(capsys, tmp_path, tmp_path / "lstm" / "checkpoint_last.pt")
    assert "'lstm' is not a Transformer that can be converted; it has no self-attention" in said

    def changed(change):
        checkpoint = load(stock)
        change(checkpoint["model"], checkpoint["cfg"]["model"])
        torch.save(checkpoint, str(tmp_path / "changed.pt"))
        return refused(capsys, tmp_path, tmp_path / "changed.pt")

    assert "'encoder.layers.0.fc1.weight' has the shape [48, 32], and by the checkpoint's flags [56, 32]" in changed(
        lambda state, flags: setattr(flags, "encoder_ffn_embed_dim", 56)
    )
    assert "it has a 'encoder.layers.1." in changed(lambda state, flags: setattr(flags, "encoder_layers", 1))
    assert (
        "'transformer' is not a Transformer that can be converted; it has a 'decoder.embed_length.weight'"
        in changed(lambda state, flags: state.update({"decoder.embed_length.weight": torch.zeros(2)}))
    )
    assert "it has no 'decoder.layers.0.encoder_attn.q_proj.weight'" in changed(
        lambda state, flags: state.pop("decoder.layers.0.encoder_attn.q_proj.weight")
    )
    assert "it has no 'decoder.embed_tokens.weight'" in changed(lambda s, flags: s.pop("decoder.embed_tokens.weight"))
    said = changed(lambda state, flags: setattr(flags, "encoder_attention_heads", 5))
    assert "a transformer_rela cannot be built with its flags (InputError: width 32 is not divisible by 5 heads" in said


# run there: train stock softmax (if asked) and score the references, with its own fairseq and torch
THERE = """
import json, sys
sys.path[:0] = [{tests!r}]
import fairseq_rela.models, fairseq_rela.tasks
from fairseq_runs import fairseq_generate, fairseq_train, tagged
data, checkpoint, *flags = sys.argv[1:]
if flags:
    fairseq_train(data, checkpoint.rsplit("/", 1)[0], "--max-update", 5, *flags, arch="transformer")
lines = fairseq_generate(data, checkpoint, "--score-reference")
print("SCORES", json.dumps({{i: float(h[0]) for i, h in tagged(lines, "H").items()}}))
"""


def there(data, checkpoint, *flags):
    code = THERE.format(tests=str(ROOT / "tests"))
    words = [str(OTHER), "-c", code, str(data), str(checkpoint), *flags]
    env = {**environment(), "PATH": os.environ["PATH"]}
    done = subprocess.run(words, env=env, cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SCORES ")]
    return {int(i): score for i, score in json.loads(line[7:]).items()}


def here(data, checkpoint):
    return {i: float(h[0]) for i, h in tagged(fairseq_generate(data, checkpoint, "--score-reference"), "H").items()}


@pytest.mark.skipif(not OTHER.exists(), reason=f"the other stack's environment is not there ({OTHER})")
def test_a_stock_checkpoint_of_the_other_stack(data, tmp_path, capsys):
    theirs = there(data, tmp_path / "checkpoint_last.pt", *SMALL)
    convert(capsys, tmp_path / "checkpoint_last.pt", "softmax", tmp_path / "softmax.pt")
    assert len(theirs) == 8 and here(data, tmp_path / "softmax.pt") == pytest.approx(theirs, abs=1e-3)
    convert(capsys, tmp_path / "checkpoint_last.pt", "rela_g", tmp_path / "warm.pt")
    assert here(data, tmp_path / "warm.pt") == pytest.approx(there(data, tmp_path / "warm.pt"), abs=1e-3)
