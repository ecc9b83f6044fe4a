"""Language models through fairseq's commands: training, fairseq-eval-lm and generation, compared with stock ones."""

import contextlib
import io
import math
from unittest import mock

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq_cli import eval_lm, generate, interactive, train
from fairseq_runs import USER_DIR, command, language_model_data, tagged, toy_text

from fairseq_rela.attention import pointwise
from fairseq_rela.models.transformer_lm_rela import TransformerLMRelaModel
from fairseq_rela.recording.recorder import record_attention

pytestmark = pytest.mark.slow

TASK = ["--task", "language_modeling"]
TRAINING = """
    --cpu --optimizer adam --lr 0.01 --lr-scheduler inverse_sqrt --warmup-updates 10 --dropout 0.1 --max-tokens 600
    --share-decoder-input-output-embed --decoder-normalize-before --decoder-layers 2 --decoder-embed-dim 32
    --decoder-input-dim 32 --decoder-output-dim 32 --decoder-ffn-embed-dim 64 --decoder-attention-heads 4
    --required-batch-size-multiple 1 --num-workers 0 --no-epoch-checkpoints --log-format simple --seed 3
""".split()
EVALUATION = "--cpu --num-workers 0 --max-tokens 600 --required-batch-size-multiple 1".split()
CUT = {
    "none": ["--sample-break-mode", "none", "--tokens-per-sample", "64"],
    "eos": ["--sample-break-mode", "eos", "--tokens-per-sample", "64"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A small corpus's target side as a language model's data."""
    directory = tmp_path_factory.mktemp("lm")
    sizes = ["--train", 400, "--valid", 20, "--test", 20, "--max-clauses", 1]
    return language_model_data(directory, toy_text(directory, *sizes))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """trained(arch, *flags): the directory of its checkpoints."""
    made = {}

    def run(arch, *flags):
        if (arch, flags) not in made:
            save = tmp_path_factory.mktemp(arch)
            words = [str(data), "--arch", arch, "--save-dir", str(save), *TASK, *TRAINING, *flags]
            args = options.parse_args_and_arch(options.get_training_parser(), words)
            train.main(convert_namespace_to_omegaconf(args))
            made[arch, flags] = save
        return made[arch, flags]

    return run


def short(trained, arch):
    return trained(arch, *CUT["eos"], "--max-update", "30")


def fairseq(program, parser, data, directory, *flags):
    """What fairseq_cli's `program` gives back, and the lines it prints."""
    words = [str(data), "--path", str(directory / "checkpoint_last.pt"), *TASK, *EVALUATION, *map(str, flags)]
    args = options.parse_args_and_arch(parser, words)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        result = program.main(convert_namespace_to_omegaconf(args))
    return result, printed.getvalue().splitlines()


def evaluated(data, directory, *flags):
    """The loss (base 2) that fairseq-eval-lm prints."""
    return float(fairseq(eval_lm, options.get_eval_lm_parser(), data, directory, *flags)[0]["loss"])


def generated(data, directory, *flags):
    search = ["--beam", "3", "--max-len-b", "12", *CUT["eos"]]
    return fairseq(generate, options.get_generation_parser(), data, directory, *search, *flags)[1]


def loaded(directory, data, of=TransformerLMRelaModel):
    return of.from_pretrained(str(directory), "checkpoint_last.pt", str(data)).eval()


def log_probabilities(model, tokens):
    """The log-probability of each token, from one pass over all. They end with `</s>`, which also comes first."""
    whole = torch.cat([tokens[-1:], tokens[:-1]]).unsqueeze(0)
    with torch.no_grad():
        scores = model(whole)[0][0].log_softmax(-1)
    return scores.gather(1, tokens.unsqueeze(1)).squeeze(1)


PROMPTS = ["thar", "tho", "oth thar"]


@pytest.mark.parametrize("cut", CUT)
@pytest.mark.parametrize("arch", ["transformer_lm", "transformer_lm_rela_g"])
def test_train_and_evaluate(trained, data, arch, cut):
    directory = trained(arch, *CUT[cut], "--max-update", "30")
    loss = evaluated(data, directory, *CUT[cut])
    assert loss < 0.85 * math.log2(304)  # it has learned something: the dictionary has about 300 words
    # the same by hand, without batches and padding
    lm = loaded(directory, data, TransformerLanguageModel)
    total = count = 0.0
    lm.task.load_dataset("test")
    for sample in lm.task.dataset("test"):
        with torch.no_grad():
            scores = lm.models[0](sample["source"].unsqueeze(0))[0][0].log_softmax(-1)
        total -= float(scores.gather(1, sample["target"].unsqueeze(1)).sum()) / math.log(2)
        count += len(sample["target"])
    assert loss == pytest.approx(total / count, rel=1e-4)


def test_a_window_of_context(trained, data):
    directory = trained("transformer_lm_rela_g", *CUT["none"], "--max-update", "30")
    plain, windowed = (evaluated(data, directory, *CUT["none"], "--context-window", window) for window in (0, 32))
    assert windowed == pytest.approx(plain, rel=0.2) and windowed != plain


def test_the_commands_with_a_user_dir(data, tmp_path):
    save, flags = tmp_path / "save", [*TASK, *CUT["none"], "--user-dir", USER_DIR]
    training = "--arch transformer_lm_rela_g_tiny --decoder-layers 1 --max-update 4 --optimizer adam --lr 0.005".split()
    command("fairseq-train", data, "--save-dir", save, *training, *EVALUATION, *flags)
    printed = command("fairseq-eval-lm", data, "--path", save / "checkpoint_last.pt", *EVALUATION, *flags)
    assert "Perplexity: " in printed


def test_an_unknown_attention_is_answered_with_those_there_are(data, capsys):
    words = [str(data), "--arch", "transformer_lm_rela_g_tiny", *TASK, "--decoder-attn", "sofmax"]
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(options.get_training_parser(), words)
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "--decoder-attn" in error and "sofmax" in error and "rela_g_leaky_relu" in error


@pytest.fixture(scope="module")
def stocks_weights(trained, tmp_path_factory):
    """transformer_lm_softmax with the parameters that a stock model learned."""
    stock, ours = (short(trained, arch) for arch in ("transformer_lm", "transformer_lm_softmax"))
    directory = tmp_path_factory.mktemp("same")
    checkpoints = [torch.load(d / "checkpoint_last.pt") for d in (stock, ours)]
    torch.save({**checkpoints[1], "model": checkpoints[0]["model"]}, str(directory / "checkpoint_last.pt"))
    return stock, directory


def test_softmax_with_stocks_parameters_has_its_perplexity_and_writes_its_text(stocks_weights, data):
    stock, ours = stocks_weights
    for flags in (*CUT.values(), [*CUT["none"], "--context-window", "16"]):
        assert evaluated(data, ours, *flags) == pytest.approx(evaluated(data, stock, *flags), rel=1e-5)
    actual, expected = (generated(data, directory) for directory in (ours, stock))
    actual, expected = (tagged(lines, "H") for lines in (actual, expected))
    assert len(actual) == len(expected) == 20
    for i, (score, words) in expected.items():
        assert actual[i][1] == words and float(actual[i][0]) == pytest.approx(float(score), rel=1e-4)


@pytest.mark.parametrize("arch", ["transformer_lm", "transformer_lm_rela_g"])
def test_generation_goes_on_with_a_text_and_step_by_step_gives_what_the_whole_does(trained, data, tmp_path, arch):
    directory = short(trained, arch)
    (tmp_path / "prompts").write_text("".join(f"{prompt}\n" for prompt in PROMPTS))
    search = ["--beam", "3", "--max-len-b", "12", "--tokens-per-sample", "64", "--input", tmp_path / "prompts"]
    parser = options.get_interactive_generation_parser()
    lines = fairseq(interactive, parser, data, directory, *search, "--buffer-size", "3")[1]
    lm = loaded(directory, data, TransformerLanguageModel)
    texts, scores = tagged(lines, "H"), tagged(lines, "P")
    assert len(texts) == len(PROMPTS)
    for i, prompt in enumerate(PROMPTS):
        words = texts[i][1]
        assert words.startswith(prompt + " ")
        assert lm.sample(prompt, beam=3, max_len_b=12) == words
        actual = torch.tensor([float(score) for score in scores[i][0].split()]) * math.log(2)  # printed to base 2
        assert torch.allclose(actual, log_probabilities(lm.models[0], lm.encode(words)), atol=2e-4)
    assert len(tagged(generated(data, directory), "H")) == 20


def test_sampling_scores_and_both_classes(trained, data):
    directory = short(trained, "transformer_lm_rela_g")
    ours, stock = loaded(directory, data), loaded(directory, data, TransformerLanguageModel)
    assert type(ours.models[0]) is type(stock.models[0]) is TransformerLMRelaModel
    torch.manual_seed(5)
    assert len(ours.sample(PROMPTS, beam=1, sampling=True, sampling_topk=5, max_len_b=8)) == 3
    scored = [hypothesis["positional_scores"] for hypothesis in ours.score(PROMPTS)]
    for prompt, actual in zip(PROMPTS, scored):
        expected = log_probabilities(ours.models[0], ours.encode(prompt))  # fairseq scores no </s>
        assert torch.allclose(actual, expected[:-1], atol=1e-5)


def test_recorded_attention_of_a_trained_model(trained, data):
    lm = loaded(short(trained, "transformer_lm_rela_g"), data)
    tokens = lm.encode("oth thar").unsqueeze(0)
    with record_attention(lm.models[0]) as recorded:
        lm.models[0](tokens)
    assert recorded.decoder.shape == (2, 4, 1, 3, 3)
    assert recorded.info["decoder"].attention == "rela_g"


def test_a_long_context_is_trained_on_and_evaluated_by_streaming(trained, data, monkeypatch):
    spy = mock.Mock(wraps=pointwise.streaming_attention)
    monkeypatch.setattr(pointwise, "streaming_attention", spy)
    cut = ["--sample-break-mode", "none", "--tokens-per-sample", "2048", "--max-tokens", "2048"]
    directory = trained("transformer_lm_rela_g", *cut, "--max-update", "1")
    lengths = {call[0][0].size(1) for call in spy.call_args_list}
    assert 2048 in lengths and spy.call_count >= 2
    calls = spy.call_count
    assert 0 < evaluated(data, directory, *cut) < 12
    assert spy.call_count > calls


def test_thresholds_by_flags(data, trained):
    flags = ["--rela-target-sparsity", "0.9", "--rela-sparsity-warmup", "30", "--max-update", "80"]
    directory = trained("transformer_lm_rela_g", *CUT["none"], *flags)
    lm = TransformerLMRelaModel.from_pretrained(str(directory), "checkpoint_last.pt", data_name_or_path=str(data))
    lm.task.load_dataset("test")
    sample = lm.task.dataset("test").collater([lm.task.dataset("test")[i] for i in range(2)])["net_input"]
    with record_attention(lm.models[0]) as rec:
        lm.models[0](**sample)
    past = torch.ones(64, 64).tril() > 0
    assert (rec.decoder[..., past] == 0).float().mean().item() == pytest.approx(0.9, abs=0.04)
