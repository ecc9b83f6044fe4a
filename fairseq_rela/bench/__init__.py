"""Speed and memory against stock fairseq and the entmax package (paper, Table 2, Table 4 and Figure 2)."""
