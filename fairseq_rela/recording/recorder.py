"""The attention weights of any fairseq Transformer while it runs: every layer, every head, ReLA or stock softmax.

    with record_attention(model) as rec:
        model(**net_input)
    rec.cross                                     # (L, H, B, T, S), of the last call
    for weights in rec.sentences(net_input["src_tokens"], net_input["prev_output_tokens"]):
        weights["cross"]                          # (L, H, T, S), numpy, padding stripped

Shapes: L layers, H heads, B sentences, T target and S source positions.
"""

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.attention.catalog import attention
from fairseq_rela.attention.multihead import CatalogAttention
from fairseq_rela.errors import InputError
from fairseq_rela.recording.info import KINDS, KindInfo


class Watch:
    """One attention module, and the weights of its last call."""

    def __init__(self, module: MultiheadAttention) -> None:
        self.module = module
        self.wanted = False
        self.weights: Optional[Tensor] = None  # (H, B, queries, keys)
        self.sources = 0  # of a joint attention: how many of its keys, the first, are the encoder's


class View(NamedTuple):
    """A kind's part of an attention module: all its keys, or the source's or the target's of a joint one."""

    watch: Watch
    keys: str = "all"

    @property
    def weights(self) -> Tensor:
        watch = self.watch
        if self.keys == "all":
            return watch.weights
        return watch.weights[..., : watch.sources] if self.keys == "source" else watch.weights[..., watch.sources :]


# kind → layer → its views: one, but for a decoder that attends to the source twice
Views = Dict[str, Dict[int, List[View]]]


def _layers(model: nn.Module, side: str) -> List[nn.Module]:
    layers = getattr(getattr(model, side, None), "layers", None)
    # by number: iterating over fairseq's list with layerdrop leaves some out
    return [] if layers is None else [layers[i] for i in range(len(layers))]


def _watch(layer: nn.Module, name: str) -> Optional[Watch]:
    module = getattr(layer, name, None)
    if not isinstance(module, MultiheadAttention):
        return None
    if module.use_xformers:
        raise InputError("xFormers computes no attention weights: build the model without xformers_att_config")
    return Watch(module)


def find_attention(model: nn.Module) -> Views:
    """Where in a model each kind of attention is, for the kinds that it has."""
    views: Views = {kind: {} for kind in KINDS}
    for i, layer in enumerate(_layers(model, "encoder")):
        own = _watch(layer, "self_attn")
        if own:
            views["encoder"][i] = [View(own)]
    for i, layer in enumerate(_layers(model, "decoder")):
        own, cross = _watch(layer, "self_attn"), _watch(layer, "encoder_attn")
        joint = own is not None and getattr(layer, "cross_self_attention", False)
        if own:
            views["decoder"][i] = [View(own, "target" if joint else "all")]
        # with --cross-self-attention but without --no-cross-attention a layer attends to the source twice:
        # the joint attention's heads come first, then those of the attention between encoder and decoder
        looks = [View(own, "source")] if joint else []
        looks += [View(cross)] if cross else []
        if looks:
            views["cross"][i] = looks
    return {kind: layers for kind, layers in views.items() if layers}


def select(views: Views, kinds: Optional[Iterable[str]] = None, layers: Optional[Iterable[int]] = None) -> Views:
    """The views of these kinds and layers (negative ones count from the last), all by default."""
    if not views:
        raise InputError("no multi-head attention found: not a fairseq Transformer")
    chosen = tuple(views) if kinds is None else tuple(kinds)
    unknown = [kind for kind in chosen if kind not in KINDS]
    if unknown:
        raise InputError(f"no such kind of attention: {', '.join(unknown)} (there are {', '.join(KINDS)})")
    if not chosen:
        raise InputError(f"no kind of attention was named; there are {', '.join(KINDS)}")
    absent = [kind for kind in chosen if kind not in views]
    if absent:
        raise InputError(f"this model has no {', '.join(absent)} attention; it has {', '.join(views)}")
    wanted = None if layers is None else list(layers)
    return {kind: _select_layers(kind, views[kind], wanted) for kind in KINDS if kind in chosen}


def _select_layers(kind: str, views: Dict[int, List[View]], wanted: Optional[List[int]]) -> Dict[int, List[View]]:
    if wanted is None:
        return views
    if not wanted:
        raise InputError("no layer was named; they are counted from 0, and from the last as -1, -2, …")
    depth = max(views) + 1
    numbers = sorted({layer + depth if layer < 0 else layer for layer in wanted})
    for number in numbers:
        if number not in views:
            raise InputError(
                f"the {kind} attention has no layer {number if number >= 0 else number - depth}: it has {len(views)}, "
                f"counted from 0; name others, or leave out the kind"
            )
    return {number: views[number] for number in numbers}


def describe(views: Views, model: nn.Module) -> Dict[str, KindInfo]:
    """What a dump says of each kind."""
    described = {}
    for kind, layers in views.items():
        looks = [view for layer in layers.values() for view in layer]
        names = list(dict.fromkeys(attention_name(view.watch.module) for view in looks))
        # a joint attention's rows are distributions over source and target together, not over one of them
        distribution = all(view.keys == "all" and rows_are_distributions(view.watch.module) for view in looks)
        heads = sum(view.watch.module.num_heads for view in next(iter(layers.values())))
        depth = len(_layers(model, "encoder" if kind == "encoder" else "decoder"))
        described[kind] = KindInfo("+".join(names), distribution, heads, tuple(layers), depth)
    return described


def attention_name(module: MultiheadAttention) -> str:
    """Its row of the catalog; what is not ours is fairseq's, and softmax."""
    return module.name if isinstance(module, CatalogAttention) else "softmax"


def rows_are_distributions(module: MultiheadAttention) -> bool:
    return not ACTIVATIONS[attention(attention_name(module)).activation].pointwise


class Recording:
    """The weights of the last call of each attention that is watched, on the model's device.

    `encoder` (L,H,B,S,S), `decoder` (L,H,B,T,T), `cross` (L,H,B,T,S), padding included; None if not recorded.
    `info`: for each kind its attention's name, layers and heads, and whether rows are distributions.
    """

    def __init__(self, views: Views, info: Dict[str, KindInfo], padding: Optional[int]) -> None:
        self._views = views
        self.info = info
        self._padding = padding

    def weights(self, kind: str) -> Optional[Tensor]:
        """(L, H, B, queries, keys), or None if the kind is not recorded."""
        if kind not in self._views:
            return None
        for layer, views in self._views[kind].items():
            if any(view.watch.weights is None for view in views):
                raise InputError(
                    f"the {kind} attention of layer {layer} has not run: call the model inside the `with`, "
                    f"and in evaluation, where layerdrop leaves out none"
                )
        return torch.stack(
            [torch.cat([view.weights for view in views]) for views in self._views[kind].values()]
        )

    encoder = property(lambda self: self.weights("encoder"))
    decoder = property(lambda self: self.weights("decoder"))
    cross = property(lambda self: self.weights("cross"))

    def sentences(
        self, source: Tensor, target: Tensor, padding: Optional[int] = None
    ) -> Iterator[Dict[str, np.ndarray]]:
        """Each sentence's weights without its padding: kind → (L, H, queries, keys) float32.

        Args:
            source: (B, S), the model's `src_tokens`
            target: (B, T), the model's `prev_output_tokens`
            padding: the index of `<pad>`; the model's by default
        """
        padding = self._padding if padding is None else padding
        spans = {"source": _spans(source.ne(padding)), "target": _spans(target.ne(padding))}
        # one copy a kind: asking the device for each sentence would wait for it each time
        arrays = {kind: self.weights(kind).float().cpu().numpy() for kind in self._views}
        for b in range(len(source)):
            yield {
                kind: array[:, :, b, spans[queries_of(kind)][b], spans[keys_of(kind)][b]]
                for kind, array in arrays.items()
            }


def queries_of(kind: str) -> str:
    return "source" if kind == "encoder" else "target"


def keys_of(kind: str) -> str:
    return "target" if kind == "decoder" else "source"


def _spans(present: Tensor) -> List[slice]:
    """(B, length) boolean → where each row is true; padding is at its ends only."""
    array = present.cpu().numpy()
    first = array.argmax(axis=1)
    return [slice(begin, begin + length) for begin, length in zip(first.tolist(), array.sum(axis=1).tolist())]


@contextlib.contextmanager
def record_attention(
    model: nn.Module, kinds: Optional[Iterable[str]] = None, layers: Optional[Iterable[int]] = None
) -> Iterator[Recording]:
    """Record what the attentions of `model` compute inside the `with`; afterwards the model is as it was.

    Args:
        kinds: any of encoder, decoder, cross; all that the model has by default
        layers: counted from 0, or from the last as -1, -2, …; all by default

    Stock modules run on fairseq's plain path meanwhile, because its fused ones give the mean over heads or
    nothing: results can differ from an unrecorded run by float32's rounding. A beam size that an earlier search
    has left behind is set aside outside of a search, where it would make sentences share their keys.
    """
    there = find_attention(model)
    views = select(there, kinds, layers)
    recording = Recording(views, describe(views, model), _padding_index(model))
    for watch in _watches(views):
        watch.wanted = True
    with contextlib.ExitStack() as undo:
        for watch in _watches(there):  # all, because of the beam size: each layer's result is the next one's input
            plain = {"skip_embed_dim_check": True} if watch.wanted else {}
            undo.enter_context(_replaced(watch.module, forward=_watched(watch), **plain))
        if "encoder" in views:
            for layer in _layers(model, "encoder"):
                # fairseq 0.12.2: a layer's one fused call, which passes its attention module by
                if getattr(layer, "can_use_fastpath", False):
                    undo.enter_context(_replaced(layer, can_use_fastpath=False))
        yield recording


def _watches(views: Views) -> List[Watch]:
    """Each once: a joint attention is in two kinds."""
    watches = (view.watch for kind in views.values() for layer in kind.values() for view in layer)
    return list({id(watch): watch for watch in watches}.values())


def _padding_index(model: nn.Module) -> Optional[int]:
    return getattr(getattr(model, "decoder", None) or getattr(model, "encoder", None), "padding_idx", None)


@contextlib.contextmanager
def _replaced(owner: nn.Module, **values: Any) -> Iterator[None]:
    """Set attributes of an instance, and at the end put back what was there, or that nothing was."""
    before = {name: owner.__dict__[name] for name in values if name in owner.__dict__}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name in values:
            if name in before:
                setattr(owner, name, before[name])
            else:
                owner.__dict__.pop(name, None)


def _watched(watch: Watch) -> Callable[..., Tuple[Tensor, Optional[Tensor]]]:
    """A `forward` for the module that keeps every head's weights and answers what its caller asked for."""
    module, original = watch.module, watch.module.forward

    def forward(
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        searching = {} if incremental_state is not None else {"beam_size": 1}
        with _replaced(module, **searching):
            output, weights = original(
                query=query,
                key=key,
                value=value,
                key_padding_mask=key_padding_mask,
                incremental_state=incremental_state,
                need_weights=need_weights or watch.wanted,
                static_kv=static_kv,
                attn_mask=attn_mask,
                before_softmax=before_softmax,
                need_head_weights=need_head_weights or watch.wanted,
            )
        if before_softmax or not watch.wanted:  # before_softmax: scores and values, not output and weights
            return output, weights
        # in half precision fairseq shows float32 weights and uses them rounded: what is used counts
        watch.weights = weights.detach().to(output.dtype)
        if key is not None and key.size(0) != query.size(0):
            # the encoder's keys stand before the target's; in a search they come with its first step only
            watch.sources = key.size(0) - query.size(0)
        if need_head_weights:
            return output, weights
        return output, weights.mean(dim=0) if need_weights else None

    return forward
