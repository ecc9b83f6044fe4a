"""Commands without the seconds that importing fairseq takes: a process that has imported it forks for every call.

    with WarmCommands(directory) as path:      # directory has fairseq-train, …, to put first in PATH
        subprocess.run(["fairseq-train", …], env={"PATH": path, …})

What runs is each command's own entry point, in a process of its own, with the caller's arguments, environment,
directory and streams.
"""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

ENTRIES = {
    "fairseq-train": "fairseq_cli.train:cli_main",
    "fairseq-generate": "fairseq_cli.generate:cli_main",
    "fairseq-preprocess": "fairseq_cli.preprocess:cli_main",
    "fairseq-eval-lm": "fairseq_cli.eval_lm:cli_main",
    "fairseq-rela": "fairseq_rela.cli:main",
}
# fairseq_rela is not: fairseq registers nothing for a user dir that was imported before
IMPORTED = ["torch", *(entry.split(":")[0] for entry in ENTRIES.values() if entry.startswith("fairseq_cli."))]
IMPORTED += ["matplotlib.pyplot"]

CALL = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
call = json.dumps([{entry!r}, sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
server.sendall(call)
sys.exit(int(server.recv(16) or b"1"))
"""


class WarmCommands:
    def __init__(self, directory):
        self.directory = Path(directory)

    def __enter__(self):
        address = str(self.directory / "socket")
        for name, entry in ENTRIES.items():
            stub = self.directory / name
            stub.write_text(CALL.format(python=sys.executable, address=address, entry=entry))
            stub.chmod(0o755)
        self.server = subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE)
        assert b"ready\n" in iter(self.server.stdout.readline, b"")  # after what fairseq has to say
        return os.pathsep.join([str(self.directory), str(Path(sys.executable).parent), os.environ["PATH"]])

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()


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
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    os.write(1, b"ready\n")
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            answer(connection)
        connection.close()


if __name__ == "__main__":
    serve(sys.argv[1])
