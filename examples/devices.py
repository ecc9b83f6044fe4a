"""Which devices a recipe uses, as assignments for bash: launch, device_flags, workers, DEVICES.

python devices.py all|one      one: translating and scoring use one device

DEVICES is cpu, a number of GPUs of this machine, torchrun:MACHINESxGPUS or slurm:MACHINESxGPUS. Without it, all the
GPUs of this machine are used, or else the CPU. torchrun also reads NODE_RANK, MASTER_ADDR and MASTER_PORT.
"""

import os
import re
import subprocess
import sys
from typing import List, NamedTuple

import recipe


class Devices(NamedTuple):
    """`launch` stands before fairseq's command, `flags` are fairseq's, `workers` is the number of processes."""

    launch: List[str]
    flags: List[str]
    workers: int


def gpus_here() -> int:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return 0
    return sum(line.startswith("GPU") for line in listed.stdout.splitlines())


def products(name: str) -> List[str]:
    """What stands before a command on a CPU to choose the library of matrix products, PRODUCTS."""
    if name not in ("", "onednn"):
        raise recipe.RecipeError(f"PRODUCTS={name} is not known; give onednn, or leave it out for torch's own choice")
    return ["python", os.path.join(os.path.dirname(os.path.abspath(__file__)), "onednn.py")] if name else []


def devices(name: str) -> Devices:
    """The devices that `name`, a value of DEVICES, stands for."""
    variable = os.environ.get
    if name == "cpu":
        # More threads gain little on small models and lose much on a busy machine.
        launch = ["env", f"OMP_NUM_THREADS={variable('OMP_NUM_THREADS') or 1}"]
        return Devices(launch + products(variable("PRODUCTS") or ""), ["--cpu"], 1)
    if re.fullmatch(r"[1-9]\d*", name):
        return Devices([], ["--distributed-world-size", name], int(name))
    match = re.fullmatch(r"(torchrun|slurm):([1-9]\d*)x([1-9]\d*)", name)
    if not match:
        raise recipe.RecipeError(
            f"DEVICES={name} is not known; give cpu, a number of GPUs, torchrun:MACHINESxGPUS or slurm:MACHINESxGPUS"
        )
    launcher, machines, gpus = match.groups()
    workers = int(machines) * int(gpus)
    flags = ["--distributed-world-size", str(workers)]
    port = variable("MASTER_PORT") or "29500"
    if launcher == "torchrun":
        # The recipe runs on every machine, with its NODE_RANK. fairseq takes its rank from torchrun.
        launch = [
            "torchrun",
            "--nnodes",
            machines,
            "--nproc_per_node",
            gpus,
            "--node_rank",
            variable("NODE_RANK") or "0",
        ]
        launch += ["--master_addr", variable("MASTER_ADDR") or "127.0.0.1", "--master_port", port, "--no_python"]
        return Devices(launch, flags, workers)
    # One task per machine: fairseq starts one process per GPU there, and finds the other machines through the port.
    launch = ["srun", "--nodes", machines, "--ntasks-per-node", "1", "--gpus-per-node", gpus]
    return Devices(launch, [*flags, "--distributed-port", port], workers)


def main() -> None:
    name = os.environ.get("DEVICES") or str(gpus_here() or "cpu")
    try:
        chosen = devices(name)
    except recipe.RecipeError as error:
        recipe.fail(error)
    if sys.argv[1:] == ["one"] and name != "cpu":
        chosen = Devices([], [], 1)
    print(f"launch=({recipe.typed(chosen.launch)})")
    print(f"device_flags=({recipe.typed(chosen.flags)})")
    print(f"workers={chosen.workers} DEVICES={name}")


if __name__ == "__main__":
    main()
