"""Compile the kernels for GPUs that need not be there, and read what the machine code takes.

Registers, spills and shared memory come from the compiler; instructions are counted in the disassembly.
"""

import itertools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Pattern, Sequence, Tuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fairseq_rela.attention.kernels import backward, forward, norm
from fairseq_rela.attention.kernels.ops import threshold
from fairseq_rela.attention.kernels.tiles import AMD, WIDTHS, Tiles, norm_tile, precision, run_options, tiles
from fairseq_rela.errors import InputError

# (target, bytes of shared memory a program may have)
TARGETS = {
    "sm_80": (GPUTarget("cuda", 80, 32), 163 * 1024),
    "sm_90": (GPUTarget("cuda", 90, 32), 227 * 1024),
    "gfx942": (GPUTarget("hip", "gfx942", 64), 64 * 1024),
}
KERNELS = {
    "forward": forward.forward,
    "query_gradients": backward.query_gradients,
    "key_gradients": backward.key_gradients,
    "norm_forward": norm.norm_forward,
    "norm_backward": norm.norm_backward,
}
NORM_WIDTHS = (128, 512, 1024, 4096)
POINTERS = {"fp16": "*fp16", "bf16": "*bf16", "fp32": "*fp32"}
# arguments that are float32 whatever the model is in
WIDE = {"z", "dz", "a", "b", "da", "db", "left_a", "left_m", "m", "scales", "dgate", "dgain"}
NARROW = {"q", "k", "v", "dq", "dk", "dv", "left_q", "left_dz", "y", "dy", "gate", "gain"}
REAL = {"exact_scale", "last_scale", "scale", "exponent", "eps"}
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Case(NamedTuple):
    """One kernel as it is compiled; `width` is of a head, or of the whole row for a norm."""

    kernel: str
    target: str
    dtype: str = "fp16"
    width: int = 64
    causal: bool = False
    term: bool = False
    dropout: float = 0.0
    length: int = 4096
    size_alone: bool = False  # a norm without gate and gain
    sharp: bool = False  # weights by an exponential

    def flags(self) -> List[str]:
        names = ("sharp", "causal", "term", "dropout", "size_alone")
        return [name.replace("_", " ") for name in names if getattr(self, name)]

    def __str__(self) -> str:
        return " ".join([self.kernel, self.target, self.dtype, str(self.width), *self.flags()])


class Compiled(NamedTuple):
    """What the machine code takes: of registers per thread, bytes of shared memory per program, instructions."""

    registers: int
    spills: int
    shared: int
    instructions: int
    loop: int  # in the longest loop; 0 without one


def tiles_of(case: Case) -> Tiles:
    simple, amd = not (case.causal or case.term or case.dropout), case.target.startswith("gfx")
    size = 4 if case.dtype == "fp32" else 2
    return tiles(case.kernel, size, case.width, case.length, case.length, simple, amd, case.sharp)


def constants(case: Case) -> Dict[str, object]:
    """The values of the kernel's compile-time arguments."""
    if case.kernel.startswith("norm"):
        whole = not case.size_alone
        width = triton.next_power_of_2(case.width)
        return {"GATED": whole, "GAINED": whole, "ROWS": norm_tile(case.width)[0], "WIDTH": width}
    sizes = tiles_of(case)
    balanced = case.dtype == "fp16"
    flags = {"CAUSAL": case.causal, "TERM": case.term, "DROPPED": threshold(case.dropout), "SHARP": case.sharp}
    flags.update(BALANCED=balanced, NARROWED=case.dtype != "fp32")
    absent = {} if case.sharp else {"exponent": None}
    absent.update({} if case.sharp and balanced else {"m": None, "left_m": None})
    known = {
        **flags,
        **absent,
        "QUERIES": sizes.queries,
        "KEYS": sizes.keys,
        "WIDTH": case.width,
        "STAGES": sizes.stages,
        "PRECISION": precision(case.target.startswith("gfx")),
    }
    return {name: value for name, value in known.items() if name in KERNELS[case.kernel].arg_names}


def argument_type(name: str, case: Case) -> str:
    if case.size_alone and name in ("z", "dz", "gate", "gain"):  # queries or keys
        return POINTERS[case.dtype]
    if case.kernel == "key_gradients" and name == "dz":  # the copy that `query_gradients` left
        return POINTERS[case.dtype]
    if name in WIDE:
        return "*fp32"
    if name in NARROW:
        return POINTERS[case.dtype]
    return "fp32" if name in REAL else "i32"


def source(case: Case) -> ASTSource:
    """The kernel with the arguments that a model's tensors give it: aligned, with contiguous columns."""
    kernel = KERNELS[case.kernel]
    fixed = {**constants(case), **{name: 1 for name in kernel.arg_names if name.endswith("_column")}}
    signature, aligned = {}, {}
    for index, name in enumerate(kernel.arg_names):
        signature[name] = "constexpr" if name in fixed else argument_type(name, case)
        stride = name.endswith(("_head", "_row")) and name[:2] not in ("a_", "b_")
        if signature[name].startswith("*") or stride or name == "width":
            aligned[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(kernel, signature, constexprs=fixed, attrs=aligned)


def compiled(case: Case) -> Compiled:
    """Compile it for its target; Triton keeps the result, so that a second call is fast."""
    target, _ = TARGETS[case.target]
    if case.kernel.startswith("norm"):
        options = {"num_warps": norm_tile(case.width)[1]}
    else:
        options = run_options(tiles_of(case).warps, target.backend == "hip")
    binary = triton.compile(source(case), target=target, options=options)
    read = from_amd if target.backend == "hip" else from_nvidia
    return read(binary.asm, binary.metadata.shared)


def from_amd(asm: Dict[str, str], shared: int) -> Compiled:
    text = asm["amdgcn"]
    lines = [line.strip() for line in text.splitlines()]
    instruction = re.compile(r"(v|s|ds|buffer|global|flat)_")
    spills = number("vgpr_spill_count: *", text) + number("private_segment_fixed_size: *", text)
    return Compiled(number("vgpr_count: *", text), spills, shared, *counted(lines, instruction))


def from_nvidia(asm: Dict[str, bytes], shared: int) -> Compiled:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        usage = tool("cuobjdump", "-res-usage", file.name)
        lines = [line.strip() for line in tool("nvdisasm", "-c", file.name).splitlines()]
    # instructions that store or load what was spilled, and the bytes they do it in
    spills = sum(" STL" in line or " LDL" in line for line in lines) + number("STACK:", usage)
    return Compiled(number("REG:", usage), spills, shared, *counted(lines, re.compile(r"/\*")))


def tool(name: str, *words: str) -> str:
    """What one of the programs that Triton brings with it prints."""
    return subprocess.run([str(TOOLS / name), *words], check=True, capture_output=True, text=True).stdout


def number(before: str, text: str) -> int:
    """The first number that comes right after `before`, a regular expression."""
    match = re.search(before + r"(\d+)", text)
    if match is None:
        raise InputError(f"the compiler's output has no {before}; this Triton writes it in another way")
    return int(match[1])


def counted(lines: Sequence[str], instruction: Pattern) -> Tuple[int, int]:
    """How many instructions there are, and how many in the longest loop: from a label to the last jump back to it."""
    labels: Dict[str, int] = {}
    count = longest = 0
    for line in lines:
        label = re.match(r"(\.L\w+):", line)
        jump = re.search(r"(?:BRA|branch).*?(\.L\w+)", line)
        if label:
            labels[label[1]] = count
        count += bool(instruction.match(line))
        if jump and jump[1] in labels:
            longest = max(longest, count - labels[jump[1]])
    return count, longest if longest > 1 else 0  # a jump to itself follows the end of every NVIDIA kernel


def cases(targets: Sequence[str], widths: Sequence[int] = WIDTHS, every: bool = False) -> Iterator[Case]:
    """What is compiled: each kernel with nothing, and with mask, term and dropout together, for both activations.

    `every`: also what is between, bfloat16, and the tiles of short sequences.
    """
    flags = [(False, False, 0.0), (True, True, 0.1)]
    if every:
        flags = list(itertools.product((False, True), (False, True), (0.0, 0.1)))
    narrow = ("fp16", "bf16") if every else ("fp16",)
    lengths = (4096, 40) if every else (4096,)
    for target in targets:
        for kernel, size, width in AMD:
            dtypes = ("fp32",) if size == 4 else narrow
            wanted = itertools.product((False, True), dtypes if width in widths else (), flags, lengths)
            for sharp, dtype, flag, length in wanted:
                yield Case(kernel, target, dtype, width, *flag, length, sharp=sharp)
        for kernel, width in itertools.product(("norm_forward", "norm_backward"), NORM_WIDTHS):
            yield Case(kernel, target, "fp16", width)
        for kernel, width in itertools.product(("norm_forward", "norm_backward"), widths):
            yield Case(kernel, target, "fp16", width, size_alone=True)


def problem(case: Case, measured: Compiled) -> Optional[str]:
    """What is wrong with it: a spill, or more shared memory than there is."""
    limit = TARGETS[case.target][1]
    if measured.spills:
        return f"{case}: spills {measured.spills}"
    return f"{case}: {measured.shared} bytes of shared memory, {limit} at most" if measured.shared > limit else None
