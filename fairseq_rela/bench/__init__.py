"""Speed and memory against stock fairseq and the entmax package (compare the paper's Table 2 and Figure 2)."""
