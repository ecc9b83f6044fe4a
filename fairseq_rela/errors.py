"""What a user can get wrong, told in one line."""


class InputError(ValueError):
    """Bad input. The message names the file, the value and what would be right; `cli` prints it alone."""
