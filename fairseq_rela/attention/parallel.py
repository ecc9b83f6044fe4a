"""Independent work on the threads torch was given, one long piece each.

Torch divides every single operation among its threads and waits for all of them after each. That is right
for large operations. Streaming attention is many small ones: where the machine has other work too, it would
spend its time waiting for the slowest thread.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Callable, Iterator, Sequence, TypeVar

import torch

Item = TypeVar("Item")


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch's operations on `count` threads each. The setting is the process's, not only this thread's."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def for_each(work: Callable[[Sequence[Item]], None], items: Sequence[Item], device: torch.device) -> None:
    """work(items), or on a CPU with several threads work(some of the items) in each; nothing is differentiated.

    No thread outlives the call: it costs a fraction of a millisecond, and leaves nothing to go wrong in a fork.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(items)) if device.type == "cpu" else 1
    if workers < 2:
        work(items)
        return
    inference = torch.is_inference_mode_enabled()

    def in_thread(part: Sequence[Item]) -> None:
        torch.set_num_threads(threads // workers)  # OpenMP's setting is each thread's own
        with torch.inference_mode(inference), torch.no_grad():  # so is torch's
            work(part)

    with torch_threads(threads // workers), ThreadPoolExecutor(workers) as pool:
        bounds = [len(items) * i // workers for i in range(workers + 1)]
        parts = [items[start:stop] for start, stop in zip(bounds, bounds[1:])]
        for _ in pool.map(in_thread, parts):
            pass
