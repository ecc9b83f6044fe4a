"""What a GPU is told to do: the operators of a computation on tensors without numbers (torch's device `meta`)."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NOTHING = ("empty", "new_empty", "empty_like", "_unsafe_view", "_reshape_alias", "detach", "lift_fresh")
GRADIENTS = "attention_gradients"  # of queries, and of keys and values: two kernels in one operator


class Launches(TorchDispatchMode):
    """The names of the operators that launch a kernel, in order: not views, not memory alone."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        out = function(*args, **(kwargs or {}))
        on_the_host = isinstance(out, torch.Tensor) and out.device.type == "cpu"  # the seed of the dropout
        if not function.is_view and name not in NOTHING and not on_the_host:
            self.names += [name] * (2 if name == GRADIENTS else 1)
        return out


def decoding_step(attention, static, width=64, dtype=torch.float16, sentences=2, beam=1):
    """The launches of the third step of a search: cross attention if `static`, else self-attention."""
    state = {}
    x = torch.empty(1, sentences * beam, width, dtype=dtype, device="meta")
    encoded = torch.empty(7, sentences * beam, width, dtype=dtype, device="meta")
    padding = torch.zeros(sentences * beam, 7, dtype=torch.bool, device="meta") if static else None
    if beam > 1:
        attention.set_beam_size(beam)
    with torch.no_grad():
        for _ in range(3):
            with Launches() as found:
                inputs = (x, encoded, encoded) if static else (x, x, x)
                attention(*inputs, padding, incremental_state=state, need_weights=False, static_kv=static)
    return found.names


def training_step(attention, causal, padded=True, width=64, dtype=torch.float16):
    """The launches of the forward pass, and those of both."""
    x = torch.empty(5, 2, width, dtype=dtype, device="meta", requires_grad=True)
    padding = torch.zeros(2, 5, dtype=torch.bool, device="meta") if padded else None
    mask = torch.empty(5, 5, device="meta") if causal else None
    with Launches() as found:
        out, _ = attention(x, x, x, padding, need_weights=False, attn_mask=mask)
        forward = list(found.names)
        torch.autograd.backward(out, torch.empty_like(out))
    return forward, found.names
