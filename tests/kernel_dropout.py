"""The dropout of the kernels, written out with torch: `test_kernels` shows that theirs is the same."""

import torch


def mixed(x):
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0xD35A2D97) & 0xFFFFFFFF
    return x ^ (x >> 15)


def dropout_mask(seed, heads, queries, keys, dropout):
    """Which weights are kept (N, T, S), by the definition in `kernels.parts` written out once more."""
    n = torch.arange(heads).view(-1, 1, 1)

    def numbers(salt, positions):
        return mixed(mixed(mixed(torch.tensor(seed + salt * 0x1E3779B9)) ^ n) + positions)

    x = numbers(1, torch.arange(queries).view(1, -1, 1)) ^ numbers(2, torch.arange(keys).view(1, 1, -1))
    x = (x * 0x21F0AAAD) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0xD35A2D97) & 0xFFFFFFFF
    return x >= round(dropout * 2**32)
