"""Commands that start at once: a process that has imported fairseq forks for every call.

    subprocess.run(["fairseq-train", …], env={"PATH": warm_path(), …})

What runs is each command's own entry point, in a process of its own, with the caller's arguments, environment,
directory and streams. A signal does not reach it: to kill a command, start the real one.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ENTRIES = {
    "fairseq-train": "fairseq_cli.train:cli_main",
    "fairseq-generate": "fairseq_cli.generate:cli_main",
    "fairseq-hydra-train": "fairseq_cli.hydra_train:cli_main",
    "fairseq-interactive": "fairseq_cli.interactive:cli_main",
    "fairseq-preprocess": "fairseq_cli.preprocess:cli_main",
    "fairseq-eval-lm": "fairseq_cli.eval_lm:cli_main",
    "fairseq-rela": "fairseq_rela.cli:main",
}
# fairseq_rela is not: fairseq registers nothing for a user dir that was imported before
IMPORTED = ["torch", *(entry.split(":")[0] for entry in ENTRIES.values() if entry.startswith("fairseq_cli."))]
IMPORTED += ["matplotlib.pyplot"]
OPTIONAL = ["torch._dynamo"]  # torch 2 imports it at an optimizer's first step, which takes a second; 1.12 has none

CALL = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
call = json.dumps([{entry!r}, sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
server.sendall(call)
sys.exit(int(server.recv(16) or b"1"))
"""


@functools.lru_cache(maxsize=None)
def warm_path():
    """A PATH whose commands start at once, for as long as this process lives."""
    directory = tempfile.TemporaryDirectory()  # removed when this process ends
    address = os.path.join(directory.name, "socket")
    for name, entry in ENTRIES.items():
        stub = Path(directory.name, name)
        stub.write_text(CALL.format(python=sys.executable, address=address, entry=entry))
        stub.chmod(0o755)
    words = [sys.executable, __file__, address]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(_stop, server, directory)
    assert b"ready\n" in iter(server.stdout.readline, b"")  # after what fairseq has to say
    return os.pathsep.join([directory.name, str(Path(sys.executable).parent), os.environ["PATH"]])


def _stop(server, directory):
    server.stdin.close()
    server.wait()
    directory.cleanup()


def answer(connection):
    """Run the command of one call, in a process of its own, and say its exit status."""
    size, streams, *_ = socket.recv_fds(connection, 8, 3)
    size, call = int.from_bytes(size, "big"), b""
    while len(call) < size:
        call += connection.recv(size - len(call))
    entry, arguments, directory, environment = json.loads(call)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    sys.argv = arguments
    module, name = entry.split(":")
    try:
        status = getattr(importlib.import_module(module), name)()
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(b"%d" % (status if isinstance(status, int) else bool(status)))
    os._exit(0)


def serve(address):
    for module in IMPORTED:
        importlib.import_module(module)
    for module in OPTIONAL:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    os.write(1, b"ready\n")
    # until the tests' end of this pipe is closed, by them or by their end
    while 0 not in select.select([server, 0], [], [])[0]:
        connection, _ = server.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            answer(connection)
        connection.close()


if __name__ == "__main__":
    serve(sys.argv[1])
