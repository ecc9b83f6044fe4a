"""The linear layers of the attention."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Projection(nn.Linear):
    """A linear layer that is faster for few rows on a CPU, as in a step of beam search.

    It computes W xᵀ, for which torch uses all its threads. For x Wᵀ with few rows torch uses one thread.
    """

    FEW = 8

    @classmethod
    def of(cls, layer: nn.Module) -> nn.Module:
        """The same layer with the same parameters. A layer with hooks (quantisation noise) is returned as it is."""
        if type(layer) is not nn.Linear or layer.bias is None or layer._forward_pre_hooks:
            return layer
        projection = cls(1, 1)
        projection.in_features, projection.out_features = layer.in_features, layer.out_features
        projection.weight, projection.bias = layer.weight, layer.bias
        return projection

    def forward(self, x: Tensor) -> Tensor:
        if not torch.jit.is_scripting():
            few = x.numel() <= self.FEW * self.in_features and x.device.type == "cpu"
            if few and torch.get_num_threads() > 1 and not torch.is_grad_enabled():
                rows = x.reshape(-1, self.in_features)
                output = torch.addmm(self.bias.unsqueeze(1), self.weight, rows.t()).t().contiguous()
                return output.view(x.shape[:-1] + (self.out_features,))
        return F.linear(x, self.weight, self.bias)
