"""The paper's Table 4: floating-point operations of softmax and of ReLA-g beside the matrix products both have.

T queries and keys, H heads, width d. ReLA-g's count has the norm and the gate, which act on T × d numbers.
"""


def softmax(length: int, heads: int = 8, width: int = 512) -> int:
    """3HT² − HT"""
    return 3 * heads * length**2 - heads * length


def rela_g(length: int, heads: int = 8, width: int = 512) -> int:
    """HT² + 10Td + T"""
    return heads * length**2 + 10 * length * width + length


def crossing(heads: int = 8, width: int = 512) -> float:
    """The length at which both counts are equal: 3HT − H = HT + 10d + 1. Longer inputs favour ReLA-g."""
    return (heads + 10 * width + 1) / (2 * heads)
