"""The embedded corpus: two invented languages, made by rule, with gold word alignments. Standard library only.

lexicon   the words: closed tables of function words and affixes, open classes of invented stems
grammar   the sentences: one table of rules, both languages and their links at once
noise     pairs that are not translations, with labels, for a quality filter
options   sizes and languages, and whether a corpus can be made with them
writing   splits and files

The command is `fairseq-rela toy-corpus`.
"""
