"""Converts the checkpoint of a softmax Transformer to another attention.

All weights are kept. The norms, which softmax does not have, are initialised to fit them.
"""

import argparse
import re
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

from fairseq_rela.attention.catalog import CATALOG
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.attention.norms import Gated, HeadRMSNorm, LayerNorm, RMSNorm
from fairseq_rela.checkpoints import load
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS
from fairseq_rela.models import transformer_lm_rela, transformer_rela
from fairseq_rela.models.architectures import PLACEMENTS
from fairseq_rela.models.transformer_lm_rela import TransformerLMRelaConfig

SIDES = ("encoder", "decoder")
EMBEDDING_FILES = ("encoder_embed_path", "decoder_embed_path")  # flags that only a new model needs
UNINITIALISED = "embed_positions._float_tensor"  # a buffer of fairseq 0.12.2, which makes a new one if it is missing
MOST_POSITIONS = 1_000_000  # the most tokens of a sentence, because a model has a table of that length
SENTENCES, LENGTH = 32, 16  # random sentences, and the number of words in each


class NotConvertible(InputError):
    """A model cannot be converted. The message has its name and the reason."""

    def __init__(self, path: str, name: str, why: str):
        super().__init__(f"{path}: '{name}' is not a Transformer that can be converted; {why}")


def convert(path: str, to: str) -> Tuple[dict, List[str]]:
    """The checkpoint at `path` with the attention `to`, and the flags with which fairseq-train builds its model."""
    if to not in PLACEMENTS:
        raise InputError(f"unknown attention '{to}'; known are {', '.join(PLACEMENTS)}")
    checkpoint = load(path)
    try:
        return _converted(checkpoint, path, to)
    except InputError:
        raise
    except Exception as error:  # fairseq's models raise many types of exceptions for flags that do not fit
        raise InputError(f"{path}: not a Transformer that can be converted ({_one_line(error)})") from None


def _converted(checkpoint: dict, path: str, to: str) -> Tuple[dict, List[str]]:
    state: Dict[str, Tensor] = checkpoint["model"]
    name, flags, cfg = _configuration(checkpoint, path)
    if not any(".self_attn." in parameter for parameter in state):
        raise NotConvertible(path, name, "it has no self-attention")
    is_lm = not any(parameter.startswith("encoder.") for parameter in state)
    if is_lm and to not in CATALOG:
        raise InputError(
            f"{path}: '{name}' is a language model, for which there is no {to}; known are {', '.join(CATALOG)}"
        )
    for kind in KINDS:
        if flags.get(f"{kind}_attn") not in (None, "softmax"):
            raise InputError(f"{path}: its {kind} attention is {flags[f'{kind}_attn']}; only softmax is converted")

    vocabularies = {side: _vocabulary(state, side, name, path) for side in (["decoder"] if is_lm else SIDES)}
    flags.update(dict.fromkeys((file for file in EMBEDDING_FILES if file in flags), None))
    flags.update(_name=("transformer_lm_rela" if is_lm else "transformer_rela"), **_attention_flags("softmax"))
    _check_size(flags, state, path)
    softmax = _new_model(flags, vocabularies, path)
    flags.update(_attention_flags(to))
    model = _new_model(flags, vocabularies, path)
    for each in (softmax, model):
        # to the names of the current fairseq, without the fused copies of 0.12.2
        each.upgrade_state_dict(state)  # type: ignore[operator]
    _load_all(softmax, state, name, path)

    initialise_norms(model, heads_rms(softmax, *(len(words) for words in vocabularies.values())))
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
    checkpoint.pop("last_optimizer_state", None)  # it is of the softmax model, and so are the running means below
    if isinstance(checkpoint.get("extra_state"), dict):
        for mean in ("ema", "ema_fp32_params"):
            checkpoint["extra_state"].pop(mean, None)
    return checkpoint, words


# The new parameters


def heads_rms(softmax: nn.Module, *vocabulary: int) -> Dict[str, float]:
    """name of an attention module → the root mean square of its heads, on sentences of random words.

    Real text is not needed: on the toy corpus, random words gave gains within 25 % of those of real sentences.
    """
    squares: Dict[str, Tensor] = {}
    hooks = [
        module.out_proj.register_forward_pre_hook(
            lambda _, heads, place=place: squares.update({place: heads[0].pow(2).mean()})
        )
        for place, module in softmax.named_modules()
        if isinstance(module, RelaMultiheadAttention)
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


def initialise_norms(model: nn.Module, rms: Dict[str, float]) -> None:
    """Initialise the norms so that the normalised heads are as large as those of softmax.

    The gates start at 0, which halves every head, and the gains make up for it. A random gate, with which training from
    scratch starts, would remove whole dimensions here, because it is multiplied by the heads of a trained model, which
    are large.
    """
    for place, module in model.named_modules():
        norm = module.norm if isinstance(module, RelaMultiheadAttention) else None
        if isinstance(norm, Gated):
            nn.init.zeros_(norm.gate)
            inner: RMSNorm = norm.norm  # type: ignore[assignment]
            nn.init.constant_(inner.gain, 2 * rms.get(place, 0.5))
        elif isinstance(norm, (RMSNorm, HeadRMSNorm, LayerNorm)):
            nn.init.constant_(norm.gain, rms.get(place, 1.0))


# The model behind a checkpoint


def _configuration(checkpoint: dict, path: str) -> Tuple[str, dict, dict]:
    """(name of the model, its flags, all settings) of a checkpoint. fairseq upgrades the settings of an old one."""
    if checkpoint.get("args") is not None:
        try:
            checkpoint = checkpoint_utils._upgrade_state_dict(checkpoint)
        except Exception as error:  # fairseq raises many types of exceptions here
            arch = getattr(checkpoint["args"], "arch", "its model")
            raise InputError(f"{path}: fairseq cannot read the flags of '{arch}' ({_one_line(error)})") from None
    cfg = checkpoint.get("cfg")
    if OmegaConf.is_config(cfg):
        cfg = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    model = cfg.get("model") if isinstance(cfg, dict) else None
    flags = dict(vars(model)) if isinstance(model, Namespace) else dict(model or {})
    name = flags.get("_name") or flags.get("arch")
    if not name or not isinstance(cfg, dict):
        raise InputError(f"{path}: not a fairseq checkpoint (it does not say what its model is)")
    if name in ARCH_CONFIG_REGISTRY and isinstance(model, Namespace):
        # Add the defaults that an older fairseq did not save.
        complete = Namespace(**flags)
        ARCH_CONFIG_REGISTRY[name](complete)
        flags = vars(complete)
    return name, flags, cfg


def _vocabulary(state: Dict[str, Tensor], side: str, name: str, path: str) -> Dictionary:
    """A dictionary as large as the embeddings, which may be plain or adaptive."""
    table = re.compile(rf"{side}\.embed_tokens\.(embeddings\.\d+\.0\.)?weight")
    tables = [weight for parameter, weight in state.items() if table.fullmatch(parameter)]
    size = sum(len(weight) for weight in tables if weight.numel())
    if not size:
        raise NotConvertible(path, name, f"it has no '{side}.embed_tokens.weight'")
    words = Dictionary()
    while len(words) < size:
        words.add_symbol(f"w{len(words)}")
    return words


def _check_size(flags: dict, state: Dict[str, Tensor], path: str) -> None:
    """InputError if the flags describe a much larger model than the checkpoint has weights for. Nothing is built."""
    described = 0
    for side in SIDES:
        layers, width, inner = (flags.get(f"{side}_{size}") for size in ("layers", "embed_dim", "ffn_embed_dim"))
        if isinstance(layers, int) and isinstance(width, int) and isinstance(inner, int):
            described += max(layers, 0) * (4 * width**2 + 2 * abs(width * inner) + 1)
            for name in (f"{side}_input_dim", f"{side}_output_dim"):  # projected from and to the width
                other = flags.get(name)
                described += abs(other * width) if isinstance(other, int) and other != width else 0
    held = sum(weight.numel() for weight in state.values())
    if described > 2 * held + 1000:
        raise InputError(
            f"{path}: its flags describe a model of at least {described} parameters, but it has {held}; "
            f"layers or a width (…_dim) is wrong"
        )
    for name in ("max_source_positions", "max_target_positions", "tokens_per_sample"):
        positions = flags.get(name)
        if isinstance(positions, int) and positions > MOST_POSITIONS:
            raise InputError(f"{path}: its flag {name} is {positions}; at most {MOST_POSITIONS} can be converted")


def _attention_flags(to: str) -> Dict[str, str]:
    return {f"{kind}_attn": attention for kind, attention in PLACEMENTS[to].items()}


def _new_model(flags: dict, vocabularies: Dict[str, Dictionary], path: str) -> nn.Module:
    """Our model with these flags, with the same new parameters at every call."""
    target = vocabularies["decoder"]
    task = Namespace(source_dictionary=vocabularies.get("encoder", target), target_dictionary=target)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return build_model(Namespace(**flags), task)
    except Exception as error:  # fairseq's builders raise many types of exceptions
        raise InputError(f"{path}: a {flags['_name']} cannot be built with its flags ({_one_line(error)})") from None


def _load_all(softmax: nn.Module, state: Dict[str, Tensor], name: str, path: str) -> None:
    """Load the parameters of the checkpoint. They must be exactly those of this Transformer."""
    for parameter, weight in softmax.state_dict().items():
        if parameter in state and state[parameter].shape != weight.shape:
            shapes = f"{list(state[parameter].shape)}, and by the checkpoint's flags {list(weight.shape)}"
            raise InputError(f"{path}: '{parameter}' has the shape {shapes}")
        if parameter in state and state[parameter].is_floating_point() != weight.is_floating_point():
            raise InputError(f"{path}: '{parameter}' holds {state[parameter].dtype}, not {weight.dtype}")
    missing, unexpected = softmax.load_state_dict(state, strict=False)
    for article, parameters in (("no", missing), ("a", unexpected)):
        for parameter in parameters:
            raise NotConvertible(path, name, f"it has {article} '{parameter}'")


# The flags that build the model


def _architecture(flags: dict, to: str, is_lm: bool) -> List[str]:
    """The flags with which fairseq-train builds this model: the architecture that needs the fewest other flags."""
    family, sizes = ("transformer_lm", transformer_lm_rela.SIZES) if is_lm else ("transformer", transformer_rela.SIZES)
    archs = [f"{family}_{to}", *(f"{family}_{to}_{size}" for size in sizes)]
    if is_lm:
        archs.append("transformer_lm_rela")  # the only one with layer norm after each sublayer
    candidates = [(arch, _command_line_flags(arch, flags, is_lm)) for arch in archs]
    return min((["--arch", arch, *words] for arch, words in candidates if words is not None), key=len)


def _command_line_flags(arch: str, flags: dict, is_lm: bool) -> Optional[List[str]]:
    """The flags that differ from the defaults of `arch`, as fairseq-train takes them; None if one cannot be given."""
    parser = argparse.ArgumentParser(add_help=False)
    if is_lm:
        gen_parser_from_dataclass(parser, TransformerLMRelaConfig())
    else:
        gen_parser_from_dataclass(parser, TransformerConfig(), with_prefix="")
    defaults = Namespace()
    ARCH_CONFIG_REGISTRY[arch](defaults)
    words: List[str] = []
    for action in parser._actions:
        default = getattr(defaults, action.dest, action.default)
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


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]
