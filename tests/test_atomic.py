"""Writing a file atomically where something is there already: a file, a link, a device, a pipe."""

import errno
import os
import stat
import threading

import pytest
from dump_samples import write_dump

from fairseq_rela.atomic import write_atomically, write_text_atomically
from fairseq_rela.cli import main as fairseq_rela


def test_a_file_is_replaced_and_nothing_else_stays(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    write_text_atomically(str(path), "new")
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["file"]


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def write(file):
        file.write(b"half")
        raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        write_atomically(str(path), write)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("there", [True, False], ids=["of a file", "of nothing"])
def test_a_link_stays(tmp_path, there):
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    if there:
        file.write_text("old")
    link.symlink_to(file)
    write_text_atomically(str(link), "new")
    assert link.is_symlink() and file.read_text() == "new"
    assert os.listdir(tmp_path / "elsewhere") == ["file"]


def test_a_pipe_is_written_into(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_text_atomically(str(pipe), "text")
    reader.join(timeout=60)
    assert read == ["text"] and stat.S_ISFIFO(os.stat(pipe).st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_device_stays_a_device():
    """/dev/full takes nothing. A rename would have replaced it by a file, for everybody on the machine."""
    with pytest.raises(OSError) as error:
        write_text_atomically("/dev/full", "text")
    assert error.value.errno == errno.ENOSPC and error.value.filename == "/dev/full"
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_pipe_that_is_to_be_new_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError):
        write_atomically(str(tmp_path / "pipe"), lambda file: file.write(b"text"), replace=False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_command_says_it_in_one_line(tmp_path, capsys):
    write_dump(tmp_path / "dump", range(2))
    assert fairseq_rela(["align", str(tmp_path / "dump"), "--out", "/dev/full"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "/dev/full" in error
