"""Rectified Linear Attention for fairseq (Zhang, Titov, Sennrich: *Sparse Attention with Linear Units*, 2021).

Importing this package alone is cheap and registers nothing: fairseq imports `fairseq_rela.models`
and `fairseq_rela.tasks` when it is given `--user-dir fairseq_rela`.
"""

__version__ = "0.2.0"
