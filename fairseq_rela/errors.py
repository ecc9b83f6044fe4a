"""The exception for bad input from a user."""


class InputError(ValueError):
    """Bad input. The message is one line that names the file, the value and what would be right.

    The `fairseq-rela` command prints the message without a traceback.
    """
