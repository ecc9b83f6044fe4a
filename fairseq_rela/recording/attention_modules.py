"""Where in a fairseq Transformer its attention is, by kind and layer."""

from typing import Dict, Iterable, List, NamedTuple, Optional

from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import attention
from fairseq_rela.attention.multihead import RelaMultiheadAttention
from fairseq_rela.dump.info import KindInfo
from fairseq_rela.dump.selection import selected_kinds, selected_layers
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import KINDS


class RecordedModule:
    """One attention module, and the weights of its last call, and their norms (`contributions`) if they are wanted."""

    def __init__(self, module: MultiheadAttention) -> None:
        self.module = module
        self.wanted = False
        self.weights: Optional[Tensor] = None  # (H, B, queries, keys)
        self.norms: Optional[Tensor] = None  # (H, B, queries, keys)
        self.source_keys = 0  # of a joint attention: how many of its keys, the first ones, are the encoder's


class KeyRange(NamedTuple):
    """The part of an attention module that belongs to one kind.

    That is all its keys, or, of a joint attention (--cross-self-attention), those of the source or of the target.
    """

    recorded: RecordedModule
    keys: str = "all"  # or "source", "target"

    @property
    def module(self) -> MultiheadAttention:
        return self.recorded.module

    @property
    def weights(self) -> Optional[Tensor]:
        """(H, B, queries, keys) of the last call; None before the first."""
        return self._own(self.recorded.weights)

    @property
    def norms(self) -> Optional[Tensor]:
        """The same for the norms; None if they are not recorded."""
        return self._own(self.recorded.norms)

    def _own(self, every: Optional[Tensor]) -> Optional[Tensor]:
        source_keys = self.recorded.source_keys
        if every is None or self.keys == "all":
            return every
        return every[..., :source_keys] if self.keys == "source" else every[..., source_keys:]


# kind → layer → its parts. There is one part, except in a decoder layer that attends to the source twice.
AttentionParts = Dict[str, Dict[int, List[KeyRange]]]


def layers_of(model: nn.Module, side: str) -> List[nn.Module]:
    """The layers of the encoder or the decoder."""
    layers = getattr(getattr(model, side, None), "layers", None)
    # By number, because iterating over fairseq's list with layerdrop leaves some layers out.
    return [] if layers is None else [layers[i] for i in range(len(layers))]


def _attention_of(layer: nn.Module, name: str) -> Optional[RecordedModule]:
    module = getattr(layer, name, None)
    if not isinstance(module, MultiheadAttention):
        return None
    if module.use_xformers:
        raise InputError("xFormers does not return attention weights: build the model without xformers_att_config")
    return RecordedModule(module)


def find_attention(model: nn.Module) -> AttentionParts:
    """Every attention of a model, for the kinds that the model has."""
    parts: AttentionParts = {kind: {} for kind in KINDS}
    for i, layer in enumerate(layers_of(model, "encoder")):
        self_attention = _attention_of(layer, "self_attn")
        if self_attention:
            parts["encoder"][i] = [KeyRange(self_attention)]
    for i, layer in enumerate(layers_of(model, "decoder")):
        self_attention, cross_attention = _attention_of(layer, "self_attn"), _attention_of(layer, "encoder_attn")
        joint = getattr(layer, "cross_self_attention", False)
        cross = []
        if self_attention:
            parts["decoder"][i] = [KeyRange(self_attention, "target" if joint else "all")]
            # With --cross-self-attention but without --no-cross-attention a layer attends to the source twice.
            # The heads of the joint attention come first, then those of the encoder-decoder attention.
            cross += [KeyRange(self_attention, "source")] if joint else []
        cross += [KeyRange(cross_attention)] if cross_attention else []
        if cross:
            parts["cross"][i] = cross
    return {kind: layers for kind, layers in parts.items() if layers}


def select(
    parts: AttentionParts, kinds: Optional[Iterable[str]] = None, layers: Optional[Iterable[int]] = None
) -> AttentionParts:
    """The attention of these kinds and layers (negative numbers count from the last), or all of it."""
    if not parts:
        raise InputError("no multi-head attention found: not a fairseq Transformer")
    wanted = None if layers is None else list(layers)
    selected = {}
    for kind in selected_kinds(parts, kinds):
        numbers = selected_layers(kind, parts[kind], wanted)
        selected[kind] = {number: parts[kind][number] for number in numbers}
    return selected


def describe(parts: AttentionParts, model: nn.Module, norms: bool = False) -> Dict[str, KindInfo]:
    """What a dump says about each kind."""
    described = {}
    for kind, layers in parts.items():
        every = [part for layer in layers.values() for part in layer]
        names = list(dict.fromkeys(attention_name(part.module) for part in every))
        # The rows of a joint attention are distributions over source and target together, not over one of them.
        distribution = all(part.keys == "all" and rows_are_distributions(part.module) for part in every)
        heads = sum(part.module.num_heads for part in next(iter(layers.values())))
        depth = len(layers_of(model, "encoder" if kind == "encoder" else "decoder"))
        described[kind] = KindInfo("+".join(names), distribution, heads, tuple(layers), depth, norms)
    return described


def attention_name(module: MultiheadAttention) -> str:
    """The module's name in the catalog. A module that is not ours is fairseq's own, which is softmax."""
    return module.name if isinstance(module, RelaMultiheadAttention) else "softmax"


def rows_are_distributions(module: MultiheadAttention) -> bool:
    """Whether each row of weights sums to 1."""
    return ACTIVATIONS[attention(attention_name(module)).activation].distribution


def recorded_modules(parts: AttentionParts) -> List[RecordedModule]:
    """Each module once, although a joint attention belongs to two kinds."""
    modules = (part.recorded for layers in parts.values() for layer in layers.values() for part in layer)
    return list({id(module): module for module in modules}.values())
