"""The reader and the writer of dumps under the name they had before version 0.2. See `fairseq_rela.dump`."""

from fairseq_rela.dump.info import DumpInfo, KindInfo
from fairseq_rela.dump.reader import AttentionDump, Record
from fairseq_rela.dump.writer import DumpWriter
from fairseq_rela.kinds import KINDS

__all__ = ["KINDS", "AttentionDump", "DumpInfo", "DumpWriter", "KindInfo", "Record"]
