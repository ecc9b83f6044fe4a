"""Fixes for what Triton's interpreter gets wrong."""


def mend_bfloat16():
    """The interpreter's `tl.dot` multiplies the bit patterns of bfloat16: give it float32 instead."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.create_dot

    def create_dot(self, a, b, *rest):
        wide = []
        for x in (a, b):
            if x.dtype.scalar == tl.bfloat16:
                bits = x.data.astype(np.uint32) << 16
                x = interpreter.TensorHandle(bits.view(np.float32), tl.float32)
            wide.append(x)
        return original(self, *wide, *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot
