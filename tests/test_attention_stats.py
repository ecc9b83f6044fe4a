"""Telemetry while training: --attn-stats, against sentences recorded one by one, on tiny models and a tiny corpus."""

import contextlib
import importlib.util
import json
import logging
import multiprocessing
import re

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import ModuleProxyWrapper
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics, progress_bar
from fairseq_cli import preprocess, train, validate
from fairseq_runs import TRAINING, fairseq_generate, fairseq_train, free_port, toy_text

from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.attention.norms import Gated
from fairseq_rela.errors import InputError
from fairseq_rela.recording.attention_modules import KeyRange, RecordedModule, find_attention
from fairseq_rela.recording.heads_probe import HeadsProbe, probe_heads, taker_of_heads
from fairseq_rela.recording.recorder import record_attention
from fairseq_rela.tasks import attention_stats
from fairseq_rela.tasks.attention_counts import GATES, HEADS, SATURATED, add_heads, count_weights
from fairseq_rela.tasks.attention_stats import log_counts
from fairseq_rela.tasks.attention_warnings import warn_about_heads

STATS = ["--task", "translation_attention", "--attn-stats"]
SMALL = ["--encoder-layers", 2, "--decoder-layers", 2, "--encoder-embed-dim", 16, "--decoder-embed-dim", 16]
SMALL += ["--encoder-attention-heads", 2, "--decoder-attention-heads", 2, "--no-epoch-checkpoints", "--max-epoch", 2]
SMALL += ["--max-tokens-valid", 60, "--log-format", "json", "--max-tokens", 600]
NAMES = ("sparsity", "null_rate", "dead_heads", "gate_saturation", "weight_scale", "largest_head_energy")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The path of parallel data; beside it in `lm`, its target side alone. Validation takes several batches."""
    directory = tmp_path_factory.mktemp("corpus")
    text = toy_text(directory, "--train", 60, "--valid", 15, "--test", 9, "--max-clauses", 1)
    for where, sides, end in (("bin", ["-s", "src", "-t", "tgt"], ""), ("lm", ["--only-source"], ".tgt")):
        files = [f"--{split}pref={text / split}{end}" for split in ("train", "valid", "test")]
        arguments = [*sides, *files, "--destdir", str(directory / where), "--workers", "1"]
        preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    return directory / "bin"


@contextlib.contextmanager
def logged():
    """What fairseq's metrics and our warnings say inside the `with`: {"valid": [stats, …], "warnings": [line, …]}."""
    logs = {"valid": [], "test": [], "warnings": []}

    class Keep(logging.Handler):
        def emit(self, record):
            if record.levelno == logging.WARNING:
                logs["warnings"].append(record.getMessage())
            elif record.name in logs:  # fairseq names the logger after the subset
                logs[record.name].append(json.loads(record.getMessage()))

    # on the very loggers: fairseq-validate takes the root's handlers away
    handler, loggers = Keep(), [progress_bar.logger, attention_stats.logger]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield logs
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def trained(data, save_dir, *flags, **arch):
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # which fairseq keeps from the last training in a process
    with logged() as logs:
        fairseq_train(data, save_dir, *SMALL, *flags, **arch)
    return logs


def validated(data, checkpoint, *flags, task="translation_attention"):
    """fairseq-validate as from the command line, where flags override the checkpoint's."""
    arguments = [str(data), "--path", str(checkpoint), "--task", task, "--cpu", "--max-tokens", "60"]
    arguments += ["--required-batch-size-multiple", "1", "--num-workers", "0", "--log-format", "json", *map(str, flags)]
    args = options.parse_args_and_arch(options.get_validation_parser(), arguments)
    given = options.parse_args_and_arch(options.get_validation_parser(), arguments, suppress_defaults=True)
    with logged() as logs:
        validate.main(convert_namespace_to_omegaconf(args), given)
    return logs


def telemetry(stats):
    """The metrics of attention in a line of the log, without the subset's name."""
    logs = {re.sub("^(valid|test)_", "", key): float(value) for key, value in stats.items() if "attn_" in key}
    assert all(re.fullmatch(r"attn_[a-z_]+/(encoder|decoder|cross)_\d", key) for key in logs)
    return logs


def load(data, checkpoint):
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], {"data": str(data)})
    return model.eval(), cfg, task


def one_by_one(data, checkpoint, subset="valid"):
    """The same metrics of a subset, of plain loops over the rows of each sentence by itself."""
    model, cfg, task = load(data, checkpoint)
    task.load_dataset(subset, task_cfg=cfg.task)
    dataset, rows, gates, shares = task.dataset(subset), {}, {}, {}

    def keep(norm, inputs, output):
        z = inputs[0][:, 0]
        gates.setdefault(norm, []).append(torch.sigmoid(norm.gate * z).flatten())

    def keep_shares(module):
        def hook(_, inputs):
            for z in inputs[0][:, 0].double():
                energy = [float((head**2).sum()) for head in z.split(module.head_dim)]
                if sum(energy):
                    shares.setdefault(module, []).append([one / sum(energy) for one in energy])

        return hook

    views = find_attention(model)
    for module in {part.module for layers in views.values() for layer in layers.values() for part in layer}:
        taker_of_heads(module).register_forward_pre_hook(keep_shares(module))
    for norm in model.modules():
        if isinstance(norm, Gated):
            norm.register_forward_hook(keep)
    for i in range(len(dataset)):
        net_input = dataset.collater([dataset[i]])["net_input"]
        with torch.no_grad(), record_attention(model) as recording:
            model(**net_input)
        for kind, layers in views.items():
            for layer, weights in zip(layers, recording.weights(kind)[:, :, 0].tolist()):
                for head, matrix in enumerate(weights):
                    seen = [row[: t + 1] if kind == "decoder" else row for t, row in enumerate(matrix)]
                    rows.setdefault((kind, layer), {}).setdefault(head, []).extend(seen)
    logs = {}
    for (kind, layer), heads in rows.items():
        every = [row for head in heads.values() for row in head]
        nonzero = [abs(weight) for row in every for weight in row if weight != 0]
        values = {
            "sparsity": 1 - len(nonzero) / sum(map(len, every)),
            "null_rate": sum(not any(row) for row in every) / len(every),
            "dead_heads": sum(not any(map(any, head)) for head in heads.values()),
            "weight_scale": sum(nonzero) / len(nonzero),
        }
        by_module = [np.mean(shares[part.module], axis=0) for part in views[kind][layer] if part.module in shares]
        values["largest_head_energy"] = max(float(share.max()) for share in by_module)
        norms = [getattr(part.module, "norm", None) for part in views[kind][layer]]
        if any(norm in gates for norm in norms):
            gate = torch.cat([part for norm in norms for part in gates[norm]])
            values["gate_saturation"] = ((gate < 0.05) | (gate > 0.95)).double().mean().item()
        logs.update({f"attn_{name}/{kind}_{layer}": value for name, value in values.items()})
    return logs


def assert_close(logs, expected):
    """Up to the log's rounding, and sums in another order."""
    assert logs.keys() == expected.keys()
    for key in expected:
        assert logs[key] == pytest.approx(expected[key], rel=1e-4, abs=1e-4), key


# --- counting ---


def shown(kind, *counts):
    """The metrics of some batches' counts, without the layer."""
    with metrics.aggregate(new_root=True) as agg:
        for count in counts:
            log_counts(kind, count.numpy())
    return {key: value for key, value in agg.get_smoothed_values().items() if not key.startswith("_")}


def test_by_hand():
    """A layer of two heads: a sentence of 3 queries and 2 keys, and one of a query and a key, padded to them."""
    weights = torch.full((1, 2, 2, 3, 2), 9.0)  # where there is padding, 9 and what a softmax of nothing gives
    weights[0, :, 1, 2] = float("nan")
    weights[0, 0, 0] = torch.tensor([[0, 2], [0, 0], [0, 0]])
    weights[0, 1, 0] = torch.tensor([[0, 0], [-0.0, 0], [0, 0]])
    weights[0, 0, 1, 0, 0], weights[0, 1, 1, 0, 0] = -1.5, 0
    queries, keys = torch.tensor([[1, 1, 1], [1, 0, 0]]).bool(), torch.tensor([[1, 1], [1, 0]]).bool()
    counts = count_weights(weights, queries, keys, causal=False)
    assert counts.tolist() == [[8, 14, 2, 3.5, 0, 0, 0, 2, 0, 0, 0, 0, 0]]
    assert shown("cross", counts) == {
        "attn_sparsity/cross_0": 0.8571,  # 12 of 14
        "attn_null_rate/cross_0": 0.75,  # 6 of 8
        "attn_dead_heads/cross_0": 1,
        "attn_weight_scale/cross_0": 1.75,
    }
    # a second batch, where head 1 attends: no mean of the batches' rates would give these
    more = count_weights(torch.ones(1, 2, 1, 1, 1), queries[1:, :1], keys[1:, :1], causal=False)
    more[:, GATES], more[:, SATURATED] = 8, 2
    assert shown("cross", counts, more) == {
        "attn_sparsity/cross_0": 0.75,  # 12 of 16
        "attn_null_rate/cross_0": 0.6,  # 6 of 10
        "attn_dead_heads/cross_0": 0,
        "attn_gate_saturation/cross_0": 0.25,
        "attn_weight_scale/cross_0": 1.375,  # (2 + 1.5 + 1 + 1) / 4
    }


def test_the_future_is_not_seen():
    weights = torch.tensor([[0.0, 5], [0, 3]]).view(1, 1, 1, 2, 2)
    both = torch.ones(1, 2, dtype=torch.bool)
    assert count_weights(weights, both, both, causal=True).tolist() == [[2, 3, 1, 3, 0, 0, 0, 1, 0, 0]]


def test_a_layer_of_zeros_has_scale_0_and_one_of_another_sort_is_not_shown():
    both = torch.ones(1, 2, dtype=torch.bool)
    counts = count_weights(torch.zeros(1, 3, 1, 2, 2), both, both, causal=False)
    logs = shown("encoder", torch.cat([torch.zeros_like(counts), counts]))
    assert logs == {
        "attn_sparsity/encoder_1": 1,
        "attn_null_rate/encoder_1": 1,
        "attn_dead_heads/encoder_1": 3,
        "attn_weight_scale/encoder_1": 0,
    }


def probed(z, heads=2):
    """A probe that has seen z (T, B, d)."""
    probe = HeadsProbe(heads)
    probe(torch.nn.Identity(), (torch.tensor(z),))
    return probe


def test_energy_by_hand():
    """Two heads of width 2. The shares are means over queries, not over the sum of their squares."""
    probe = probed([[[3.0, 0, 0, 4]], [[1e30, 0, 0, 0]], [[0.0, 0, 0, 0]], [[0.0, 1, 0, 0]]])
    row = torch.zeros(HEADS + 6, dtype=torch.float64)
    row[0] = 8
    add_heads(row, [probe], torch.tensor([[True, True, True, False]]))  # the last query is padding
    assert row[HEADS + 2 :].tolist() == pytest.approx([1.36, 0.64, 0, 0])  # 9/25 + 1, 16/25
    assert shown("cross", row.view(1, -1))["attn_largest_head_energy/cross_0"] == 0.68


def test_values_that_are_not_finite_are_counted_by_head():
    probe = probed([[[1.0, 2, float("nan"), 0]], [[1.0, 0, 0, float("-inf")]], [[1.0, 0, 0, 0]]])
    row = torch.zeros(HEADS + 6, dtype=torch.float64)
    add_heads(row, [probe], torch.tensor([[True, True, True]]))
    assert row[HEADS + 2 :].tolist() == [1, 0, 0, 2]  # energy of the only query that has one; broken queries


@pytest.mark.parametrize("name", ["relu_rmsnorm", "rela_g", "rela_g_layernorm", "rela_gc", "rexa"])
@pytest.mark.parametrize("part", ["norm", "v_proj"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_the_head_with_a_nan_is_named_and_no_other(name, part, need_weights):
    """Whether its values or its gain and gate are NaN. The norm over all heads makes every output NaN."""
    module = RelaMultiheadAttention(name, 4, 2, self_attention=True).eval()
    with torch.no_grad():
        for parameter in getattr(module, part).parameters():
            parameter[2:] = float("nan")
    x = torch.ones(3, 1, 4)
    with probe_heads({"encoder": {0: [KeyRange(RecordedModule(module))]}}) as probes:
        module(query=x, key=x, value=x, need_weights=need_weights)
    assert probes["encoder"][0][0].broken.tolist() == [[[False, True]]] * 3


def test_half_precision_is_squared_in_float32():
    probe = HeadsProbe(2)
    probe(torch.nn.Identity(), (torch.tensor([[[60000.0, 0, 0, 60000.0]]], dtype=torch.float16),))
    assert probe.energy.tolist() == [[[0.5, 0.5]]] and not probe.broken.any()


def counted(attending, energy=None, broken=None):
    """A row of counts of 8 queries and 3 heads."""
    energy = [8 / 3] * 3 if energy is None else energy
    return [8.0 * 3, 9, 9, 9, 0, 0, 8, *attending, *energy, *(broken or [0, 0, 0])]


def test_the_warnings_name_kind_layer_and_heads():
    alive = [counted([1, 1, 1])] * 2
    some = [counted([1, 0, 1]), counted([0, 1, 0])]
    weak = [counted([1, 1, 0], energy=[7.999, 0.001, 0])]
    ill = [counted([1, 1, 1], broken=[0, 2, 1]), counted([1, 1, 1], broken=[1, 1, 1])]
    with logged() as logs:
        warn_about_heads({"encoder": np.array(alive)})
        assert logs["warnings"] == []
        warn_about_heads({"decoder": np.array(alive), "cross": np.array(some)})
        warn_about_heads({"cross": np.array(some)[:1]})
        warn_about_heads({"encoder": np.array(weak)})
        warn_about_heads({"cross": np.array(ill), "encoder": np.array(alive), "decoder": np.array(alive + ill[:1])})
    several, one, nothing, little, nan = logs["warnings"]
    assert several == (
        "3 heads attended to nothing in the whole validation: cross layer 0 head 1; cross layer 1 heads 0, 2"
    )
    assert one == "1 head attended to nothing in the whole validation: cross layer 0 head 1"
    assert nothing == "1 head attended to nothing in the whole validation: encoder layer 0 head 2"
    assert (
        little == "1 head had less than 0.1% of the energy of the layer in the whole validation: encoder layer 0 head 1"
    )
    assert nan == (
        "7 heads gave NaN or infinite values (the cause is in the first of these): cross layer 0 heads 1, 2; "
        "cross layer 1 heads 0, 1, 2; decoder layer 2 heads 1, 2"
    )


# --- fairseq's commands ---


@pytest.fixture(scope="module")
def rela(data, tmp_path_factory):
    """A training of a ReLA model with telemetry: where it was saved, and what it logged."""
    save = tmp_path_factory.mktemp("rela")
    return save, trained(data, save, *STATS, "--valid-subset", "valid,test")


@pytest.fixture(scope="module")
def without(data, tmp_path_factory):
    """The same training without telemetry: by fairseq's task, and by ours."""
    save = tmp_path_factory.mktemp("without")
    return {task: (save / task, trained(data, save / task, "--task", task)) for task in ("translation", STATS[1])}


def test_a_training_logs_what_the_sentences_say_one_by_one(data, rela):
    save, logs = rela
    assert len(logs["valid"]) == len(logs["test"]) == 2  # an epoch each
    for subset in ("valid", "test"):
        assert logs[subset][-1].keys() - logs[subset][0].keys() <= {f"{subset}_best_loss"}
        assert_close(telemetry(logs[subset][-1]), one_by_one(data, save / "checkpoint_last.pt", subset))
    kinds = [f"{kind}_{layer}" for kind in ("encoder", "decoder", "cross") for layer in (0, 1)]
    assert telemetry(logs["valid"][-1]).keys() == {f"attn_{name}/{kind}" for name in NAMES for kind in kinds}
    assert any(telemetry(logs["valid"][-1])[f"attn_gate_saturation/{kind}"] for kind in kinds)
    assert telemetry(logs["valid"][0]) != telemetry(logs["valid"][1])


MODELS = {
    "stock": ("transformer", []),
    "joint": ("transformer_rela_g_tiny", ["--cross-self-attention"]),
    "leaky": ("transformer_rela_g_leaky_relu_tiny", []),
}


@pytest.mark.parametrize("name", MODELS)
def test_any_transformer(data, tmp_path, name):
    arch, flags = MODELS[name]
    logs = telemetry(trained(data, tmp_path, *STATS, *flags, "--max-epoch", 1, arch=arch)["valid"][-1])
    assert_close(logs, one_by_one(data, tmp_path / "checkpoint_last.pt"))
    places = {f"{kind}_{layer}" for kind in ("encoder", "decoder", "cross") for layer in (0, 1)}
    assert {key.split("/")[1] for key in logs} == places
    assert any("gate" in key for key in logs) == (name != "stock")
    if name == "stock":
        assert not any(value for key, value in logs.items() if "weight_scale" not in key and "energy" not in key)


@pytest.mark.parametrize("break_mode", ["eos", "none"])
def test_a_language_model(data, tmp_path, break_mode):
    data = data.parent / "lm"
    arguments = [data, "--arch", "transformer_lm_rela_g_tiny", "--save-dir", tmp_path, *TRAINING, *SMALL]
    arguments += ["--task", "language_modeling_attention", "--attn-stats", "--sample-break-mode", break_mode]
    arguments += ["--tokens-per-sample", 20, "--max-epoch", 1]
    of_the_encoder = [i for i, flag in enumerate(arguments) if str(flag).startswith("--encoder")]
    for i in reversed(of_the_encoder):
        del arguments[i : i + 2]
    args = options.parse_args_and_arch(options.get_training_parser(), [str(word) for word in arguments])
    with logged() as logs:
        train.main(convert_namespace_to_omegaconf(args))
    logs = telemetry(logs["valid"][-1])
    assert logs.keys() == {f"attn_{name}/decoder_{layer}" for name in NAMES for layer in (0, 1)}
    assert_close(logs, one_by_one(data, tmp_path / "checkpoint_last.pt"))


def state(checkpoint):
    return torch.load(str(checkpoint), map_location="cpu")


def assert_same(left, right):
    """Bit by bit, tensors within containers too."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            if not str(key).endswith("_float_tensor"):  # fairseq 0.12.2's, of memory as it was found
                assert_same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right):
            assert_same(one, other)
    else:
        assert torch.equal(left, right) if torch.is_tensor(left) else left == right


def test_off_changes_no_number_and_on_no_parameter(rela, without):
    trainings = [without["translation"], without["translation_attention"], rela]
    plain, off, on = (state(save / "checkpoint_last.pt") for save, _ in trainings)
    for part in ("model", "last_optimizer_state"):
        assert_same(plain[part], off[part])
        assert_same(plain[part], on[part])
    for part in ("val_loss", "best"):
        assert plain["extra_state"][part] == off["extra_state"][part]
    plain, off, on = ([{**stats, "valid_wps": None} for stats in logs["valid"]] for _, logs in trainings)
    assert plain == off  # but for how fast it was
    for stats, counted in zip(plain, on):  # the weights that are counted are computed by another path
        assert float(counted["valid_loss"]) == pytest.approx(float(stats["valid_loss"]), rel=1e-5)


def test_a_training_step_records_nothing(data, tmp_path, monkeypatch):
    passes, models = [], []

    def counted(model):
        models.append(model)
        passes.append(model.training)
        return record_attention(model)

    monkeypatch.setattr(attention_stats, "record_attention", counted)
    logs = trained(data, tmp_path / "on", *STATS, "--max-epoch", 1)
    assert len(logs["valid"]) == 1 and len(passes) > 1 and not any(passes)
    norms = [module for module in models[0].modules() if isinstance(module, Gated)]
    assert norms and not any(norm._forward_pre_hooks for norm in norms), "left behind"
    passes.clear()
    trained(data, tmp_path / "unvalidated", *STATS, "--disable-validation")
    trained(data, tmp_path / "off", *STATS[:2], "--max-epoch", 1)
    assert passes == []


def test_a_search_for_bleu_is_not_counted(data, rela, tmp_path):
    _, plain = rela
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 8}', "--eval-bleu-detok", "space"]
    logs = trained(data, tmp_path, *STATS, *bleu)
    assert "valid_bleu" in logs["valid"][-1]
    assert telemetry(logs["valid"][0]) == telemetry(plain["valid"][0])
    assert telemetry(logs["valid"][1]) == telemetry(plain["valid"][1])


def test_validate(data, rela):
    save, logs = rela
    actual = validated(data, save / "checkpoint_last.pt")  # the flag is the checkpoint's
    assert telemetry(actual["valid"][0]) == telemetry(logs["valid"][-1])


def test_validate_takes_the_flag_and_for_a_checkpoint_of_another_task_overrides(data, rela, without):
    expected = telemetry(rela[1]["valid"][-1])
    overrides = "{'task': {'_name': 'translation_attention', 'attn_stats': True}}"
    flags = {"translation_attention": ["--attn-stats"], "translation": ["--model-overrides", overrides]}
    for task, (save, logs) in without.items():
        assert telemetry(logs["valid"][-1]) == telemetry(validated(data, save / "checkpoint_last.pt")["valid"][0]) == {}
        assert telemetry(validated(data, save / "checkpoint_last.pt", *flags[task])["valid"][0]) == expected


@pytest.fixture(scope="module")
def dying(rela, tmp_path_factory):
    """The same model, with head 1 of the cross attention of layer 0 killed: queries of 0 give weights of 0."""
    path = tmp_path_factory.mktemp("dying") / "dying.pt"
    dead = state(rela[0] / "checkpoint_last.pt")
    for part in ("weight", "bias"):
        dead["model"][f"decoder.layers.0.encoder_attn.q_proj.{part}"][8:] = 0
    torch.save(dead, str(path))
    return path


DEATH = "1 head attended to nothing in the whole validation: cross layer 0 head 1"


def test_a_dead_head_is_counted_and_told_of(data, rela, dying, tmp_path):
    assert not rela[1]["warnings"]
    going_on = ["--finetune-from-model", dying, "--lr", 1e-9, "--max-epoch", 1, "--valid-subset", "valid,test"]
    for logs in (trained(data, tmp_path, *STATS, *going_on), validated(data, dying, "--valid-subset", "valid,test")):
        assert logs["warnings"] == [DEATH, DEATH]  # of each subset
        dead = {key: value for key, value in telemetry(logs["valid"][0]).items() if "dead" in key}
        assert dead.pop("attn_dead_heads/cross_0") == 1 and len(dead) == 5 and not any(dead.values())


def test_a_head_whose_values_break_is_told_of(data, rela, tmp_path):
    """Head 1 of the decoder's layer 1 overflows. The heads after it are not finite either, and are named after it."""
    ill = state(rela[0] / "checkpoint_last.pt")
    ill["model"]["decoder.layers.1.self_attn.v_proj.bias"][8:] = float("inf")
    torch.save(ill, str(tmp_path / "ill.pt"))
    logs = validated(data, tmp_path / "ill.pt")
    (warning,) = [line for line in logs["warnings"] if "NaN" in line]
    assert "gave NaN or infinite values (the cause is in the first of these): decoder layer 1 head 1; cross" in warning


def test_a_head_that_gives_nothing_is_told_of(data, rela, tmp_path):
    """It attends, but its values are 0: the null rate does not show that."""
    weak = state(rela[0] / "checkpoint_last.pt")
    for part in ("weight", "bias"):
        weak["model"][f"encoder.layers.0.self_attn.v_proj.{part}"][:8] = 0
    torch.save(weak, str(tmp_path / "weak.pt"))
    logs = validated(data, tmp_path / "weak.pt")
    assert logs["warnings"] == [
        "1 head had less than 0.1% of the energy of the layer in the whole validation: encoder layer 0 head 0"
    ]
    assert telemetry(logs["valid"][0])["attn_largest_head_energy/encoder_0"] == 1


def train_in_a_group(arguments, answer):
    """fairseq-train as one of several processes."""
    args = options.parse_args_and_arch(options.get_training_parser(), [str(word) for word in arguments])
    with logged() as logs:
        distributed_utils.call_main(convert_namespace_to_omegaconf(args), train.main)
    answer.put((args.distributed_rank, logs))


def test_two_processes_count_as_one_does(data, dying, tmp_path):
    """An odd number of batches: at the end one of them has none."""
    arguments = [data, "--arch", "transformer_rela_g_tiny", *TRAINING, *SMALL, *STATS, "--save-dir", tmp_path]
    arguments += ["--finetune-from-model", dying, "--lr", 1e-9, "--max-update", 1, "--distributed-world-size", 2]
    arguments += ["--distributed-init-method", f"tcp://127.0.0.1:{free_port()}", "--distributed-no-spawn"]
    arguments += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--distributed-rank"]
    fork = multiprocessing.get_context("fork")  # so as not to import everything again
    answer = fork.SimpleQueue()
    ranks = [fork.Process(target=train_in_a_group, args=([*arguments, rank], answer)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(timeout=120)
    assert [rank.exitcode for rank in ranks] == [0, 0]
    logs = dict(answer.get() for _ in ranks)
    alone = validated(data, tmp_path / "checkpoint_last.pt")
    assert telemetry(logs[0]["valid"][0]) == telemetry(alone["valid"][0])
    assert [logs[rank]["warnings"] for rank in (0, 1)] == [[DEATH], []], "only one of them says it"
    _, _, task = load(data, dying)
    task.load_dataset("valid")
    batches = task.get_batch_iterator(task.dataset("valid"), max_tokens=60, required_batch_size_multiple=1)
    assert len(batches) % 2 == 1


def test_a_model_that_torch_distributes(data, rela, tmp_path):
    """--ddp-backend pytorch_ddp, as on GPUs; fairseq has none on a CPU."""
    model, cfg, task = load(data, rela[0] / "checkpoint_last.pt")
    task.load_dataset("valid")
    sample = next(task.get_batch_iterator(task.dataset("valid"), max_tokens=60).next_epoch_itr())
    criterion = task.build_criterion(cfg.criterion)
    plain = task.valid_step(sample, model, criterion)[2]
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        wrapped = ModuleProxyWrapper(torch.nn.parallel.DistributedDataParallel(model))
        assert_same(task.valid_step(sample, wrapped, criterion)[2], plain)
    finally:
        torch.distributed.destroy_process_group()
    assert {"_attn_encoder", "_attn_decoder", "_attn_cross"} <= plain.keys()


class Writer:
    """In the place of TensorBoard's or of Weights & Biases'."""

    def __init__(self, *_, **__):
        self.scalars = {}
        self.config = self
        WRITERS.append(self)

    def add_scalar(self, key, value, step):
        self.scalars[key] = value

    def log(self, values, step):
        self.scalars.update(values)

    init = add_text = flush = close = update = lambda *_, **__: None


WRITERS = []


def test_tensorboard_and_wandb_get_them(data, rela, tmp_path, monkeypatch):
    WRITERS.clear()
    monkeypatch.setattr(progress_bar, "SummaryWriter", Writer)
    monkeypatch.setattr(progress_bar, "wandb", Writer())
    monkeypatch.setattr(progress_bar, "_tensorboard_writers", {})
    trained(data, tmp_path / "save", *STATS, "--tensorboard-logdir", tmp_path / "board", "--wandb-project", "mine")
    expected = telemetry(rela[1]["valid"][-1])
    wandb, board = WRITERS[0].scalars, progress_bar._tensorboard_writers["valid"].scalars
    for key, value in expected.items():
        assert board[key] == wandb[f"valid/{key}"] == pytest.approx(value, rel=1e-5)
    assert not any(key.startswith("_") for key in [*board, *wandb])


@pytest.mark.skipif(not importlib.util.find_spec("tensorboard"), reason="no tensorboard")
def test_tensorboard_events(data, rela, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained(data, tmp_path / "save", *STATS, "--tensorboard-logdir", tmp_path / "board")
    events = EventAccumulator(str(tmp_path / "board" / "valid"))
    events.Reload()
    for key, value in telemetry(rela[1]["valid"][-1]).items():
        assert events.Scalars(key)[-1].value == pytest.approx(value, rel=1e-5)


def test_the_best_checkpoint_by_one_of_them(data, tmp_path):
    logs = trained(data, tmp_path, *STATS, "--best-checkpoint-metric", "attn_sparsity/cross_0")
    values = [telemetry(stats)["attn_sparsity/cross_0"] for stats in map(without_best, logs["valid"])]
    assert state(tmp_path / "checkpoint_best.pt")["extra_state"]["best"] == min(values)


def without_best(stats):
    return {key: value for key, value in stats.items() if "_best_" not in key}


def test_generation_takes_no_notice(data, rela):
    checkpoint = rela[0] / "checkpoint_last.pt"
    plain, *others = (
        [line for line in fairseq_generate(data, checkpoint, *flags) if line.startswith(("H-", "P-"))]
        for flags in ([], STATS[:2], STATS)
    )
    assert len(plain) == 18 and all(other == plain for other in others)


def test_a_model_without_attention_is_told_of_at_once(data, tmp_path):
    flags = [flag for flag in TRAINING if flag != "--share-decoder-input-output-embed"]
    arguments = [data, "--arch", "lstm", "--save-dir", tmp_path, *flags, *STATS]
    arguments += ["--disable-validation", "--max-update", 1]
    args = options.parse_args_and_arch(options.get_training_parser(), [str(word) for word in arguments])
    with pytest.raises(InputError, match="no multi-head attention found: not a fairseq Transformer"):
        train.main(convert_namespace_to_omegaconf(args))
