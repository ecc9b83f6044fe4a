"""The linear layers of the attention."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Projection(nn.Linear):
    """A linear layer that computes few rows, as a step of beam search has, as W xᵀ: on a CPU torch gives that to
    all its threads, and x Wᵀ to one."""

    FEW = 8

    @classmethod
    def of(cls, layer: nn.Module) -> nn.Module:
        """The same layer with the same parameters; quantisation noise, which hooks into a layer, is left alone."""
        if type(layer) is not nn.Linear or layer.bias is None or layer._forward_pre_hooks:
            return layer
        made = cls(1, 1)
        made.in_features, made.out_features = layer.in_features, layer.out_features
        made.weight, made.bias = layer.weight, layer.bias
        return made

    def forward(self, x: Tensor) -> Tensor:
        if not torch.jit.is_scripting():
            few = x.numel() <= self.FEW * self.in_features and x.device.type == "cpu"
            if few and torch.get_num_threads() > 1 and not torch.is_grad_enabled():
                rows = x.reshape(-1, self.in_features)
                made = torch.addmm(self.bias.unsqueeze(1), self.weight, rows.t()).t().contiguous()
                return made.view(x.shape[:-1] + (self.out_features,))
        return F.linear(x, self.weight, self.bias)
