"""The subcommands of `fairseq-rela`, one module each.

A module has a docstring, which is the help text, `add_arguments(parser)` and `run(args)`. What is not about arguments
or printing is in the other packages.
"""
