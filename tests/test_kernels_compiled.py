"""The kernels compiled for GPUs that are not here: nothing is spilled, and shared memory suffices."""

import os

import pytest

pytest.importorskip("triton")
from fairseq_rela.attention import kernels

if not kernels.available() or os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the compiler needs a newer torch, and not the interpreter", allow_module_level=True)

import re

from fairseq_rela.attention.kernels import report
from fairseq_rela.attention.kernels.compiled import TARGETS, Case, Compiled, cases, compiled, counted, problem
from fairseq_rela.attention.kernels.tiles import Tiles, norm_tile, side, tiles


def problems(wanted):
    return [line for line in (problem(case, compiled(case)) for case in wanted) if line]


@pytest.mark.parametrize("target", TARGETS)
def test_no_spills_at_the_usual_width(target):
    usual = cases([target], widths=[64])
    assert problems(case for case in usual if not case.sharp or case.causal) == []  # everything at once is tightest


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_no_spills_at_any_width(target):
    assert problems(cases([target])) == []


@pytest.mark.skipif("RELA_COMPILE_ALL" not in os.environ, reason="takes twenty minutes; RELA_COMPILE_ALL=1 runs it")
@pytest.mark.parametrize("target", TARGETS)
def test_no_spills_anywhere(target):
    assert problems(cases([target], every=True)) == []


def test_what_counts_as_a_problem():
    case = Case("forward", "sm_80", causal=True)
    assert problem(case, Compiled(255, 0, 163 * 1024, 900, 300)) is None
    assert problem(case, Compiled(255, 2, 0, 900, 300)) == "forward sm_80 fp16 64 causal: spills 2"
    too_much = "forward sm_80 fp16 64 causal: 166913 bytes of shared memory, 166912 at most"
    assert problem(case, Compiled(255, 0, 163 * 1024 + 1, 900, 300)) == too_much
    assert str(Case("forward", "sm_80", sharp=True, term=True)) == "forward sm_80 fp16 64 sharp term"


def test_a_spill_is_seen():
    """Twice the tile with half the warps cannot fit: if this passes, nothing above can fail."""
    from fairseq_rela.attention.kernels import compiled as module

    large = Tiles(128, 128, 4, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "tiles_of", lambda case: large)
        assert compiled(Case("key_gradients", "sm_80")).spills > 0


def test_instructions_are_counted():
    nvidia = [".L_x_1:", "/*0*/ MOV", "/*1*/ FADD", "/*2*/ @P0 BRA `(.L_x_1)", "/*3*/ EXIT"]
    nvidia += [".L_x_2:", "/*4*/ BRA `(.L_x_2)"]
    assert counted(nvidia, re.compile(r"/\*")) == (5, 3)
    amd = ["s_mov_b32 s0, 0", ".LBB0_1:", "v_add_f32 v0, v1, v2", "s_cbranch_scc1 .LBB0_1", "s_endpgm"]
    assert counted(amd, re.compile("(v|s)_")) == (4, 2)


def test_table():
    measured = {
        Case("forward", "sm_80"): Compiled(251, 0, 32768, 1128, 276),
        Case("forward", "sm_90"): Compiled(172, 0, 49152, 1096, 257),
        Case("norm_forward", "sm_80", width=512): Compiled(48, 0, 2048, 464, 0),
    }
    assert list(report.table(measured))[2:] == [
        "| `forward` | fp16 | 64 | 251 / 32 / 276 | 172 / 48 / 257 |",
        "| `norm_forward` | fp16 | 512 | 48 / 2 / - |",
    ]


def test_tiles_of_short_sequences():
    assert [side(n, 128) for n in (1, 16, 17, 64, 65, 4096)] == [16, 16, 32, 64, 128, 128]
    assert tiles("forward", 2, 64, 4096, 4096, True, False) == Tiles(128, 64, 4, 2)
    assert tiles("forward", 2, 64, 25, 25, False, False) == Tiles(32, 32, 4, 2)
    assert tiles("forward", 2, 64, 1, 500, False, False) == Tiles(16, 64, 4, 2)
    assert tiles("key_gradients", 4, 128, 4096, 4096, False, False) == Tiles(16, 16, 8, 1)
    assert tiles("key_gradients", 2, 128, 4096, 4096, False, False, sharp=True) == Tiles(16, 64, 8, 2)
    assert tiles("key_gradients", 2, 64, 4096, 4096, False, True, sharp=True) == Tiles(32, 64, 4, 2)
    assert tiles("key_gradients", 2, 128, 4096, 4096, False, True) == Tiles(32, 64, 4, 2)
    assert [norm_tile(width) for width in (24, 512, 1024, 2048, 4096)] == [(64, 4), (4, 4), (2, 4), (1, 4), (1, 8)]
