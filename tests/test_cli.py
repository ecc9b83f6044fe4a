"""The command: its table, its help, its one-line errors, and that it imports no more than it needs."""

import subprocess
import sys

import pytest

from fairseq_rela import __version__
from fairseq_rela.cli import COMMANDS, main


def test_without_a_command_it_lists_them(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    for name, help_line in COMMANDS.items():
        assert name in listed and help_line.split()[0] in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert f"usage: fairseq-rela {name}" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"fairseq-rela {__version__}\n"


def test_an_unknown_command_is_answered_with_the_known(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["avrage"])
    assert stop.value.code == 2
    assert "avrage" in capsys.readouterr().err


def test_the_package_and_the_commands_that_need_no_torch_do_not_import_it():
    code = "import sys; from fairseq_rela.cli import main; main(['user-dir']); main([])"
    code += "; assert not {'torch', 'fairseq'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
