"""The live explorer: a page on this machine that shows a model's attention for sentences that a reader types."""
