"""An attention dump on disk: every weight of every layer and head, for many sentences. Needs numpy alone.

info         `dump.json`: the model, its kinds of attention, how the dump was made
segment      `shardR-NNNNN.npz`: one file with many sentences
files        which segments a dump consists of
reader       AttentionDump, Record: reading
writer       DumpWriter: writing
statistics   null and sparsity rates of each pair in a TSV file, without the weights
summary      what `fairseq-rela dump-info` tells of a dump
bertviz      one sentence as BertViz takes it
"""

from fairseq_rela.dump.reader import AttentionDump, Record
from fairseq_rela.dump.writer import DumpWriter

__all__ = ["AttentionDump", "DumpWriter", "Record"]
