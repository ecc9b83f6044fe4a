"""Records the attention weights of any fairseq Transformer while it runs: every layer and head, ReLA or softmax.

    with record_attention(model) as rec:
        model(**net_input)
    rec.cross                                     # (L, H, B, T, S), of the last call
    for weights in rec.sentences(net_input["src_tokens"], net_input["prev_output_tokens"]):
        weights["cross"]                          # (L, H, T, S), numpy, padding stripped

With `record_attention(model, norms=True)`, `rec.norms("cross")` is the size of what each key contributes to the
attention's output (see `contributions`), in the same shape.

Shapes: L layers, H heads, B sentences, T target and S source positions.
"""

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_rela.dump.info import KindInfo
from fairseq_rela.errors import InputError
from fairseq_rela.kinds import keys_of, queries_of
from fairseq_rela.recording.attention_modules import (
    AttentionParts,
    KeyRange,
    RecordedModule,
    describe,
    find_attention,
    layers_of,
    recorded_modules,
    select,
)
from fairseq_rela.recording.contributions import Inside, contribution_norms, watch_inside


class Recording:
    """The weights of the last call of each recorded attention, on the model's device.

    `encoder` (L,H,B,S,S), `decoder` (L,H,B,T,T), `cross` (L,H,B,T,S), padding included; None if not recorded.
    `info` has for each kind its attention's name, layers and heads, and whether its rows are distributions.
    """

    def __init__(self, parts: AttentionParts, info: Dict[str, KindInfo], padding: Optional[int]) -> None:
        self._parts = parts
        self.info = info
        self._padding = padding

    def weights(self, kind: str) -> Optional[Tensor]:
        """(L, H, B, queries, keys), or None if the kind is not recorded."""
        if kind not in self._parts:
            return None
        return torch.stack([self._layer(kind, layer, lambda part: part.weights) for layer in self._parts[kind]])

    def norms(self, kind: str) -> Optional[Tensor]:
        """(L, H, B, queries, keys), or None if the norms of the kind are not recorded."""
        if kind not in self._parts or not self.info[kind].norms:
            return None
        return torch.stack([self._layer(kind, layer, lambda part: part.norms) for layer in self._parts[kind]])

    def _layer(self, kind: str, layer: int, read: Callable[[KeyRange], Optional[Tensor]]) -> Tensor:
        """(H, B, queries, keys)"""
        parts = [read(part) for part in self._parts[kind][layer]]
        recorded = [each for each in parts if each is not None]
        if len(recorded) < len(parts):
            raise InputError(
                f"the {kind} attention of layer {layer} has not run: call the model inside the `with`, "
                f"and in evaluation mode, where layerdrop does not skip layers"
            )
        return torch.cat(recorded)

    @property
    def encoder(self) -> Optional[Tensor]:
        return self.weights("encoder")

    @property
    def decoder(self) -> Optional[Tensor]:
        return self.weights("decoder")

    @property
    def cross(self) -> Optional[Tensor]:
        return self.weights("cross")

    def sentences(
        self, source: Tensor, target: Tensor, padding: Optional[int] = None
    ) -> Iterator[Dict[str, np.ndarray]]:
        """The weights of each sentence without its padding: kind → (L, H, queries, keys) float32.

        Args:
            source: (B, S), the model's `src_tokens`
            target: (B, T), the model's `prev_output_tokens`
            padding: the index of `<pad>`; the model's by default
        """
        return self._by_sentence(dict(self.all_weights()), source, target, padding)

    def sentence_norms(
        self, source: Tensor, target: Tensor, padding: Optional[int] = None
    ) -> Iterator[Dict[str, np.ndarray]]:
        """The norms of each sentence, as `sentences` gives the weights. Empty where norms are not recorded."""
        norms = ((kind, self.norms(kind)) for kind in self._parts)
        return self._by_sentence(
            {kind: tensor for kind, tensor in norms if tensor is not None}, source, target, padding
        )

    def _by_sentence(
        self, tensors: Dict[str, Tensor], source: Tensor, target: Tensor, padding: Optional[int]
    ) -> Iterator[Dict[str, np.ndarray]]:
        padding = self._padding if padding is None else padding
        if padding is None:
            raise InputError("the model does not say what the index of <pad> is; give `padding`")
        spans = {"source": _spans(source.ne(padding)), "target": _spans(target.ne(padding))}
        # One copy per kind, because each copy waits for the device.
        arrays = {kind: tensor.float().cpu().numpy() for kind, tensor in tensors.items()}
        for b in range(len(source)):
            yield {
                kind: array[:, :, b, spans[queries_of(kind)][b], spans[keys_of(kind)][b]]
                for kind, array in arrays.items()
            }

    def all_weights(self) -> Iterator[Tuple[str, Tensor]]:
        """(kind, weights) of every recorded kind."""
        for kind in self._parts:
            weights = self.weights(kind)
            if weights is not None:
                yield kind, weights


def _spans(present: Tensor) -> List[slice]:
    """(B, length) boolean → where each row is true. Padding is at the ends of a row only."""
    array = present.cpu().numpy()
    first = array.argmax(axis=1)
    return [slice(begin, begin + length) for begin, length in zip(first.tolist(), array.sum(axis=1).tolist())]


@contextlib.contextmanager
def record_attention(
    model: nn.Module,
    kinds: Optional[Iterable[str]] = None,
    layers: Optional[Iterable[int]] = None,
    norms: bool = False,
) -> Iterator[Recording]:
    """Record what the attention modules of `model` compute inside the `with`. Afterwards the model is as it was.

    Args:
        kinds: any of encoder, decoder, cross; all that the model has by default
        layers: counted from 0, or from the last as -1, -2, …; all by default
        norms: also record the norms of what each key contributes; not possible in the steps of a search

    Stock modules run on fairseq's plain path meanwhile, because its fused paths return the mean over heads or
    nothing. Results can differ from an unrecorded run by float32's rounding. A beam size that an earlier search
    left in a module is ignored outside of a search, because it would make sentences share their keys.
    """
    available = find_attention(model)
    parts = select(available, kinds, layers)
    recording = Recording(parts, describe(parts, model, norms), _padding_index(model))
    for recorded in recorded_modules(parts):
        recorded.wanted = True
    with contextlib.ExitStack() as undo:
        # All modules, because of the beam size: the result of each layer is the input of the next.
        for recorded in recorded_modules(available):
            plain = {"skip_embed_dim_check": True} if recorded.wanted else {}
            inside = undo.enter_context(watch_inside(recorded.module)) if norms and recorded.wanted else None
            undo.enter_context(_replaced(recorded.module, forward=_recording_forward(recorded, inside), **plain))
        if "encoder" in parts:
            for layer in layers_of(model, "encoder"):
                # fairseq 0.12.2 has one fused call for a whole layer, which does not call the attention module.
                if getattr(layer, "can_use_fastpath", False):
                    undo.enter_context(_replaced(layer, can_use_fastpath=False))
        yield recording


def _padding_index(model: nn.Module) -> Optional[int]:
    return getattr(getattr(model, "decoder", None) or getattr(model, "encoder", None), "padding_idx", None)


@contextlib.contextmanager
def _replaced(owner: nn.Module, **values: Any) -> Iterator[None]:
    """Set attributes of an instance. At the end restore their old values, or remove those that were not there."""
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


def _recording_forward(
    recorded: RecordedModule, inside: Optional[Inside]
) -> Callable[..., Tuple[Tensor, Optional[Tensor]]]:
    """A `forward` for the module that keeps the weights of every head and returns what its caller asked for.

    With `inside` it keeps the norms, too.
    """
    module, original = recorded.module, recorded.module.forward

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
        if inside and incremental_state is not None:
            raise InputError("norms cannot be recorded in the steps of a search; run the model on whole sentences")
        beam_size = {} if incremental_state is not None else {"beam_size": 1}
        with _replaced(module, **beam_size):
            output, weights = original(
                query=query,
                key=key,
                value=value,
                key_padding_mask=key_padding_mask,
                incremental_state=incremental_state,
                need_weights=need_weights or recorded.wanted,
                static_kv=static_kv,
                attn_mask=attn_mask,
                before_softmax=before_softmax,
                need_head_weights=need_head_weights or recorded.wanted,
            )
        if before_softmax or not recorded.wanted:  # before_softmax returns scores and values
            return output, weights
        # In half precision fairseq returns float32 weights but uses them rounded. The rounded ones are recorded.
        recorded.weights = weights.detach().to(output.dtype)
        if inside:
            recorded.norms = contribution_norms(module, inside, recorded.weights)
        if key is not None and key.size(0) != query.size(0):
            # The encoder's keys come before the target's. In a search only the first step has them.
            recorded.source_keys = key.size(0) - query.size(0)
        if need_head_weights:
            return output, weights
        return output, weights.mean(dim=0) if need_weights else None

    return forward
