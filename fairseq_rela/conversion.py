"""Give a softmax Transformer's checkpoint another attention, to train on from it instead of from nothing.

    fairseq-rela convert --from softmax.pt --to rela_g                  writes softmax.rela_g.pt beside it
    fairseq-rela convert --from softmax.pt --to rela_g_cross_only --output warm.pt

The source is a checkpoint of fairseq's own `transformer` or `transformer_lm`, of any architecture and of
either fairseq, or of ours with softmax. All its weights are kept, bit for bit; what softmax has not (the
norm's gain and gate) begins so that the heads are as large as softmax's were. fairseq-train takes the result
with --finetune-from-model; the flags it needs are printed. fairseq-generate and fairseq-eval-lm load it as it
is, but its translations are poor before it is trained on.
"""

import argparse
import os
import re
import shlex
from argparse import Namespace
from typing import Dict, List, Optional, Tuple

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import ARCH_CONFIG_REGISTRY, build_model
from fairseq.models.transformer import TransformerConfig
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_rela.attention.catalog import CATALOG, KINDS
from fairseq_rela.attention.multihead import CatalogAttention
from fairseq_rela.attention.norms import Gated, LayerNorm, RMSNorm
from fairseq_rela.checkpoints import allow_fairseq_checkpoints, load, write_whole
from fairseq_rela.errors import InputError
from fairseq_rela.models import transformer_lm_rela, transformer_rela
from fairseq_rela.models.transformer_lm_rela import TransformerLMRelaConfig
from fairseq_rela.models.transformer_rela import PLACEMENTS

SIDES = ("encoder", "decoder")
EMBEDDING_FILES = ("encoder_embed_path", "decoder_embed_path")  # read only to initialise
UNINITIALISED = "embed_positions._float_tensor"  # fairseq 0.12.2's; it makes a new one where there is none
SENTENCES, LENGTH = 32, 16  # of random words


class NotConvertible(InputError):
    """Another model than those that can be converted, by its name and what tells it apart."""

    def __init__(self, path: str, name: str, why: str):
        super().__init__(f"{path}: '{name}' is no Transformer that can be converted; {why}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", required=True, metavar="SOFTMAX.pt", help="a softmax checkpoint")
    parser.add_argument("--to", required=True, metavar="ATTENTION", help=f"one of {', '.join(PLACEMENTS)}")
    parser.add_argument("--output", metavar="FILE", help="the new checkpoint (default: SOFTMAX.ATTENTION.pt)")


def run(args: argparse.Namespace) -> None:
    output = args.output or f"{os.path.splitext(args.source)[0]}.{args.to}.pt"
    if os.path.realpath(output) == os.path.realpath(args.source):
        raise InputError(f"{output} is the checkpoint to convert; give another --output")
    allow_fairseq_checkpoints()
    checkpoint, flags = convert(args.source, args.to)
    write_whole(checkpoint, output)
    print(f"{args.source} with {args.to} attention written to {output}; train on from it with")
    words = ["fairseq-train", "DATA", "--user-dir", "fairseq_rela", *flags, "--finetune-from-model", output]
    print(f"  {' '.join(map(shlex.quote, words))} …")


def convert(path: str, to: str) -> Tuple[dict, List[str]]:
    """The checkpoint at `path` with the attention `to`, and the flags that make fairseq-train build its model."""
    if to not in PLACEMENTS:
        raise InputError(f"unknown attention '{to}'; known are {', '.join(PLACEMENTS)}")
    checkpoint = load(path)
    state: Dict[str, Tensor] = checkpoint["model"]
    name, flags, cfg = _configuration(checkpoint, path)
    if not any(".self_attn." in parameter for parameter in state):
        raise NotConvertible(path, name, "it has no self-attention")
    is_lm = not any(parameter.startswith("encoder.") for parameter in state)
    if is_lm and to not in CATALOG:
        raise InputError(f"{path}: '{name}' is a language model, which has no {to}; known are {', '.join(CATALOG)}")
    for kind in KINDS:
        if flags.get(f"{kind}_attn") not in (None, "softmax"):
            raise InputError(f"{path}: its {kind} attention is {flags[f'{kind}_attn']}; only softmax is converted")

    vocabularies = {side: _vocabulary(state, side, name, path) for side in (["decoder"] if is_lm else SIDES)}
    flags.update(dict.fromkeys((file for file in EMBEDDING_FILES if file in flags), None))
    flags.update(_name=("transformer_lm_rela" if is_lm else "transformer_rela"), **_attention_flags("softmax"))
    softmax = _new_model(flags, vocabularies, path)
    flags.update(_attention_flags(to))
    model = _new_model(flags, vocabularies, path)
    for each in (softmax, model):
        each.upgrade_state_dict(state)  # fairseq's names of today, and none of 0.12.2's second copies
    _load_all(softmax, state, name, path)

    begin_norms(model, heads_rms(softmax, *(len(words) for words in vocabularies.values())))
    kept = {name: state[name] for name in softmax.state_dict() if not name.endswith(UNINITIALISED)}
    dtype = next(weight.dtype for name, weight in kept.items() if name.endswith("out_proj.weight"))
    new = {name: weight.to(dtype) for name, weight in model.state_dict().items() if name not in state}
    checkpoint["model"] = {**kept, **new}
    words = _architecture(flags, to, is_lm)
    if is_lm:
        flags.pop("arch", None)
        words += ["--task", "language_modeling", "--tokens-per-sample", str(flags.get("tokens_per_sample"))]
    else:
        flags.update(_name=words[1], arch=words[1])
    checkpoint.update(args=None, cfg={**cfg, "model": flags if is_lm else Namespace(**flags)})
    checkpoint.pop("last_optimizer_state", None)  # belongs to the softmax model, as does a running mean of it
    for mean in ("ema", "ema_fp32_params"):
        checkpoint.get("extra_state", {}).pop(mean, None)
    return checkpoint, words


# What begins anew


def heads_rms(softmax: nn.Module, *vocabulary: int) -> Dict[str, float]:
    """The root mean square of each attention's heads, over sentences of random words.

    No text is needed: on the embedded corpus, random words gave the gains of real sentences within a quarter.
    """
    squares: Dict[str, Tensor] = {}
    hooks = [
        module.out_proj.register_forward_pre_hook(
            lambda _, heads, place=place: squares.update({place: heads[0].pow(2).mean()})
        )
        for place, module in softmax.named_modules()
        if isinstance(module, CatalogAttention)
    ]
    generator = torch.Generator().manual_seed(1)
    shape = (SENTENCES, LENGTH)
    sentences = [torch.randint(min(words - 1, 4), words, shape, generator=generator) for words in vocabulary]
    with torch.no_grad():
        if len(sentences) == 1:
            softmax.eval()(sentences[0])
        else:
            softmax.eval()(sentences[0], torch.full((SENTENCES,), LENGTH), sentences[1])
    for hook in hooks:
        hook.remove()
    return {place: square.sqrt().item() for place, square in squares.items()}


def begin_norms(model: nn.Module, rms: Dict[str, float]) -> None:
    """Normalised heads as large as softmax's: gates at 0, which halves all heads alike, and the gain to match.

    A gate drawn at random, the paper's, would take whole dimensions away here: it is multiplied by heads of a
    trained model, which are large.
    """
    for place, module in model.named_modules():
        norm = module.norm if isinstance(module, CatalogAttention) else None
        if isinstance(norm, Gated):
            nn.init.zeros_(norm.gate)
            nn.init.constant_(norm.norm.gain, 2 * rms.get(place, 0.5))
        elif isinstance(norm, (RMSNorm, LayerNorm)):
            nn.init.constant_(norm.gain, rms.get(place, 1.0))


# The model behind a checkpoint


def _configuration(checkpoint: dict, path: str) -> Tuple[str, dict, dict]:
    """The model's name, its flags, and all the settings of a checkpoint; of an old one, as fairseq upgrades it."""
    if checkpoint.get("args") is not None:
        try:
            checkpoint = checkpoint_utils._upgrade_state_dict(checkpoint)
        except Exception as error:  # whatever its flags lack or its model is
            model = getattr(checkpoint["args"], "arch", "its model")
            raise InputError(f"{path}: fairseq cannot read the flags of '{model}' ({_in_a_line(error)})") from None
    cfg = checkpoint.get("cfg")
    if OmegaConf.is_config(cfg):
        cfg = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    model = cfg.get("model") if isinstance(cfg, dict) else None
    flags = dict(vars(model)) if isinstance(model, Namespace) else dict(model or {})
    name = flags.get("_name") or flags.get("arch")
    if not name:
        raise InputError(f"{path}: not a fairseq checkpoint (it does not say what its model is)")
    if name in ARCH_CONFIG_REGISTRY and isinstance(model, Namespace):  # what an older fairseq did not write down
        complete = Namespace(**flags)
        ARCH_CONFIG_REGISTRY[name](complete)
        flags = vars(complete)
    return name, flags, cfg


def _vocabulary(state: Dict[str, Tensor], side: str, name: str, path: str) -> Dictionary:
    """A dictionary as large as the embeddings: plain ones, or the bands of adaptive ones."""
    table = re.compile(rf"{side}\.embed_tokens\.(embeddings\.\d+\.0\.)?weight")
    size = sum(len(weight) for parameter, weight in state.items() if table.fullmatch(parameter))
    if not size:
        raise NotConvertible(path, name, f"it has no '{side}.embed_tokens.weight'")
    words = Dictionary()
    while len(words) < size:
        words.add_symbol(f"w{len(words)}")
    return words


def _attention_flags(to: str) -> Dict[str, str]:
    return {f"{kind}_attn": attention for kind, attention in PLACEMENTS[to].items()}


def _new_model(flags: dict, vocabularies: Dict[str, Dictionary], path: str) -> nn.Module:
    """Our model with these flags, newly initialised, and always the same."""
    target = vocabularies["decoder"]
    task = Namespace(source_dictionary=vocabularies.get("encoder", target), target_dictionary=target)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return build_model(Namespace(**flags), task)
    except Exception as error:  # fairseq's builders raise all kinds
        raise InputError(f"{path}: no {flags['_name']} can be built with its flags ({_in_a_line(error)})") from None


def _load_all(softmax: nn.Module, state: Dict[str, Tensor], name: str, path: str) -> None:
    """Load the checkpoint's parameters, which must be exactly those of this Transformer."""
    for parameter, weight in softmax.state_dict().items():
        if parameter in state and state[parameter].shape != weight.shape:
            shapes = f"{list(state[parameter].shape)}, and by the checkpoint's flags {list(weight.shape)}"
            raise InputError(f"{path}: '{parameter}' has the shape {shapes}")
    missing, unexpected = softmax.load_state_dict(state, strict=False)
    for has, parameters in (("no", missing), ("a", unexpected)):
        for parameter in parameters:
            raise NotConvertible(path, name, f"it has {has} '{parameter}'")


# The flags that build it


def _architecture(flags: dict, to: str, is_lm: bool) -> List[str]:
    """fairseq-train's flags that build this model, with the architecture of ours that needs the fewest others."""
    family, sizes = ("transformer_lm", transformer_lm_rela.SIZES) if is_lm else ("transformer", transformer_rela.SIZES)
    archs = [f"{family}_{to}", *(f"{family}_{to}_{size}" for size in sizes)]
    if is_lm:
        archs.append("transformer_lm_rela")  # with layer norm after each sublayer, which the others rule out
    found = [(arch, _spelled(arch, flags, is_lm)) for arch in archs]
    return min((["--arch", arch, *words] for arch, words in found if words is not None), key=len)


def _spelled(arch: str, flags: dict, is_lm: bool) -> Optional[List[str]]:
    """fairseq-train's flags where the architecture's defaults are others; None if they cannot be said."""
    parser = argparse.ArgumentParser(add_help=False)
    if is_lm:
        gen_parser_from_dataclass(parser, TransformerLMRelaConfig())
    else:
        gen_parser_from_dataclass(parser, TransformerConfig(), with_prefix="")
    usual = Namespace()
    ARCH_CONFIG_REGISTRY[arch](usual)
    words: List[str] = []
    for action in parser._actions:
        default = getattr(usual, action.dest, action.default)
        value = flags.get(action.dest, default)
        if str(value) == str(default) or (not value and not default) or action.dest in EMBEDDING_FILES:
            continue
        if action.nargs != 0:
            words += [action.option_strings[0], ",".join(map(str, value)) if isinstance(value, list) else str(value)]
        elif value == action.const:
            words.append(action.option_strings[0])
        else:
            return None
    return words


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]
