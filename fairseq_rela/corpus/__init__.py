"""The embedded corpus: two invented languages, made by rule, with gold word alignments. Standard library only.

    lexicon   the words: closed tables of function words and affixes, open classes of invented stems
    grammar   the sentences: one table of rules, both languages and their links at once
    noise     pairs that are no translations, labelled, for a quality filter
    writing   splits, files, and their being written whole or not at all
    command   `fairseq-rela toy-corpus`
"""
