"""The paper's analyses (Section 5.2 and appendices) of a dump: numpy alone, and matplotlib for figures."""
