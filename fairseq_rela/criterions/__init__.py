"""Importing this registers every criterion with fairseq."""

from fairseq_rela.criterions.sparse_alignment import SparseAlignmentCriterion

__all__ = ["SparseAlignmentCriterion"]
