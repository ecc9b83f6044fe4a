"""The Transformer of this package with a guided head: one head of one cross attention learns word alignment.

Guided alignment is from Garg et al. (2019), *Jointly Learning to Align and Translate with Transformer Models*; fairseq
has it for softmax as `transformer_align`. The head is read in a second pass of the decoder that sees the whole target.
The criterion that trains it is in `fairseq_rela.criterions`.
"""

import contextlib
import math
from typing import Any, Dict, Iterator, List, Optional

import torch
from fairseq.models import register_model
from torch import Tensor, nn

from fairseq_rela.attention.activations import ACTIVATIONS
from fairseq_rela.errors import InputError
from fairseq_rela.models.architectures import PLACEMENTS, register_architecture, register_architectures
from fairseq_rela.models.transformer_rela import SIZES, TransformerRelaModel

# flags that a guided head does not go with, and why
REFUSED = {
    "no_cross_attention": "there is then no cross attention to guide",
    "decoder_layerdrop": "the guided layer could be left out of an update",
    "checkpoint_activations": "the scores of the guided head are then computed without a gradient",
}


@register_model("transformer_rela_align")
class TransformerRelaAlignModel(TransformerRelaModel):
    """`transformer_rela` whose head 0 of the cross attention of `--alignment-layer` is guided."""

    # what fairseq's generator asks for with --print-alignment
    full_context_alignment = True
    alignment_heads = 1

    def __init__(self, args, encoder, decoder):
        super().__init__(args, encoder, decoder)
        self.alignment_layer = guided_layer(args)

    @classmethod
    def add_args(cls, parser):
        super().add_args(parser)
        parser.add_argument(
            "--alignment-layer",
            type=int,
            metavar="N",
            help="decoder layer with the guided head, from 0; -1 is the last (default: the one before the last)",
        )

    @classmethod
    def build_model(cls, args, task):
        for name, reason in REFUSED.items():
            if getattr(args, name, None):
                raise InputError(f"--{name.replace('_', '-')} does not go with a guided head: {reason}; leave it out")
        return super().build_model(args, task)

    def forward(
        self,
        src_tokens,
        src_lengths,
        prev_output_tokens,
        return_all_hiddens: bool = True,
        features_only: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ):
        """fairseq's, with the guided head in the second output: `attn` (B, T, S), its weights with the whole target in
        view, and `alignment_scores` (B, T, S + 1), what the criterion needs."""
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths, return_all_hiddens=return_all_hiddens)
        if not torch.jit.is_scripting():  # first, so that the ordinary pass is the last, which a recorder keeps
            guided = self.guided_attention(prev_output_tokens, encoder_out)
        decoder_out = self.decoder(
            prev_output_tokens,
            encoder_out=encoder_out,
            features_only=features_only,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
            src_lengths=src_lengths,
            return_all_hiddens=return_all_hiddens,
        )
        if not torch.jit.is_scripting():
            decoder_out[1].update(guided)
        return decoder_out

    @torch.jit.unused
    def guided_attention(self, prev_output_tokens: Tensor, encoder_out: Dict[str, List[Tensor]]) -> Dict[str, Any]:
        """`attn` and `alignment_scores` of the guided head, in a pass of the decoder that sees the whole target.

        The last column of the scores is that of null: 0, or −∞ where weights always sum to 1.
        """
        attention = self.decoder.layers[self.alignment_layer].encoder_attn
        with inputs_of(attention.activation) as seen:
            _, extra = self.decoder(
                prev_output_tokens,
                encoder_out=encoder_out,
                features_only=True,
                full_context_alignment=True,
                alignment_layer=self.alignment_layer,
                alignment_heads=self.alignment_heads,
            )
        scores = seen[-1][:, 0, 0]  # (B, T, S) of (B, H, 1, T, S)
        scores = scores.masked_fill(encoder_out["encoder_padding_mask"][0].unsqueeze(1), -math.inf)
        null = -math.inf if ACTIVATIONS[attention.activation_name].distribution else 0.0
        return {"attn": extra["attn"], "alignment_scores": [nn.functional.pad(scores, (0, 1), value=null)]}


@contextlib.contextmanager
def inputs_of(module: nn.Module) -> Iterator[List[Tensor]]:
    """What the module is called with inside the `with`: the first argument of each call."""
    seen: List[Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()


def guided_layer(args) -> int:
    """The decoder layer that has the guided head, from 0. By default the one before the last, as Garg et al. found."""
    layers, layer = args.decoder_layers, getattr(args, "alignment_layer", None)
    if layer is None:
        return max(layers - 2, 0)
    if not -layers <= layer < layers:
        raise InputError(f"--alignment-layer {layer}: the decoder has the layers 0 to {layers - 1}")
    return layer % layers


register_architectures(
    "transformer_rela_align", "transformer", {f"{name}_align": row for name, row in PLACEMENTS.items()}, SIZES
)
register_architecture("transformer_rela_align", "transformer_rela_align", PLACEMENTS["rela_g"], SIZES["base"])
