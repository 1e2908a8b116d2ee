"""The dialects. Each is a table: adding one means writing down how it spells what the printer needs."""

from __future__ import annotations

from rlx.render.c import frames
from rlx.render.c.dialect import Dialect

_AXES = ("x", "y", "z")
_STORED = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64")


def _types(i32: str, u32: str, i64: str, u64: str) -> dict[str, str]:
    return {"bool": "bool", "i32": i32, "u32": u32, "i64": i64, "u64": u64, "f32": "float", "f64": "double"}


def _storage(*names: str) -> dict[str, str]:
    return dict(zip(_STORED, names, strict=True))


def _suffix(i64: str, u64: str, f32: str = "f", f64: str = "") -> dict[str, str]:
    return {"i32": "", "u32": "u", "i64": i64, "u64": u64, "f32": f32, "f64": f64}


def _math(round_: str = "rint", **other: str) -> dict[tuple[str, str], str]:
    """Functions that are overloaded for both widths."""
    names = {
        "abs": "fabs",
        "floor": "floor",
        "ceil": "ceil",
        "trunc": "trunc",
        "round": round_,
        "sqrt": "sqrt",
        "fma": "fma",
        "fmod": "fmod",
    } | other
    return {(op, r): name for op, name in names.items() for r in ("f32", "f64") if name}


def _math_f(**other: str) -> dict[tuple[str, str], str]:
    """C's functions: the float forms end in ``f``."""
    return {(op, r): name + ("f" if r == "f32" else "") for (op, r), name in _math(**other).items()}


# A union would do in C; memcpy is the form that compilers promise to see through.
_C_BITS = "".join(
    f"static inline {b} rlx_{x}_as_{y}({a} v) {{ {b} r; memcpy(&r, &v, sizeof r); return r; }}\n"
    for x, a, y, b in (
        ("f32", "float", "u32", "uint32_t"),
        ("u32", "uint32_t", "f32", "float"),
        ("f32", "float", "i32", "int32_t"),
        ("i32", "int32_t", "f32", "float"),
        ("f64", "double", "u64", "uint64_t"),
        ("u64", "uint64_t", "f64", "double"),
        ("f64", "double", "i64", "int64_t"),
        ("i64", "int64_t", "f64", "double"),
    )
)
_PAIRS = (
    ("f32", "u32"),
    ("u32", "f32"),
    ("f32", "i32"),
    ("i32", "f32"),
    ("f64", "u64"),
    ("u64", "f64"),
    ("f64", "i64"),
    ("i64", "f64"),
)

C = Dialect(
    name="c",
    types=_types("int32_t", "uint32_t", "int64_t", "uint64_t"),
    storage=_storage(
        "uint8_t",
        "int8_t",
        "int16_t",
        "int32_t",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint32_t",
        "uint64_t",
        "uint16_t",
        "uint16_t",
        "float",
        "double",
    ),
    suffix=_suffix("LL", "ULL"),
    function="static inline",
    frame=frames.c,
    group=lambda k: "",
    lane=lambda k: "",
    bits={(a, b): f"rlx_{a}_as_{b}({{0}})" for a, b in _PAIRS},
    math=_math_f(),
    preamble="#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n"
    "#pragma STDC FP_CONTRACT OFF\n" + _C_BITS,
    atomics={("add", r): "{array}[{index}] += {value}" for r in ("i32", "u32", "i64", "u64", "f32", "f64")},
)

OPENCL = Dialect(
    name="opencl",
    types=_types("int", "uint", "long", "ulong"),
    storage=_storage(
        "uchar",
        "char",
        "short",
        "int",
        "long",
        "uchar",
        "ushort",
        "uint",
        "ulong",
        "ushort",
        "ushort",
        "float",
        "double",
    ),
    suffix=_suffix("L", "UL"),
    function="static inline",
    frame=frames.opencl,
    group=lambda k: f"get_group_id({k})",
    lane=lambda k: f"get_local_id({k})",
    bits={
        ("f32", "u32"): "as_uint({0})",
        ("u32", "f32"): "as_float({0})",
        ("f32", "i32"): "as_int({0})",
        ("i32", "f32"): "as_float({0})",
        ("f64", "u64"): "as_ulong({0})",
        ("u64", "f64"): "as_double({0})",
        ("f64", "i64"): "as_long({0})",
        ("i64", "f64"): "as_double({0})",
    },
    math=_math(),
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    shared="__local {type} {name}[{size}];",
    preamble="#pragma OPENCL FP_CONTRACT OFF\n",
    pointer="volatile __global {type}*",
    unroll="#pragma unroll",
    atomics={
        **{
            (k, r): f"atomic_{k}(&{{array}}[{{index}}], {{value}})"
            for k in ("add", "min", "max")
            for r in ("i32", "u32")
        },
        **{
            (k, r): f"atom_{k}(&{{array}}[{{index}}], {{value}})"
            for k in ("add", "min", "max")
            for r in ("i64", "u64")
        },
    },
    swap={"u32": "atomic_cmpxchg({pointer}, {old}, {new})", "u64": "atom_cmpxchg({pointer}, {old}, {new})"},
)

_CUDA_BITS = {
    ("f32", "u32"): "__float_as_uint({0})",
    ("u32", "f32"): "__uint_as_float({0})",
    ("f32", "i32"): "__float_as_int({0})",
    ("i32", "f32"): "__int_as_float({0})",
    ("f64", "u64"): "((unsigned long long)__double_as_longlong({0}))",
    ("u64", "f64"): "__longlong_as_double((long long)({0}))",
    ("f64", "i64"): "__double_as_longlong({0})",
    ("i64", "f64"): "__longlong_as_double({0})",
}
_CUDA_ATOMICS = {
    (k, r): f"atomic{k.title()}(&{{array}}[{{index}}], {{value}})"
    for k in ("add", "min", "max")
    for r in ("i32", "u32", "u64")
} | {
    ("min", "i64"): "atomicMin(&{array}[{index}], {value})",
    ("max", "i64"): "atomicMax(&{array}[{index}], {value})",
    ("add", "i64"): "atomicAdd((unsigned long long*)&{array}[{index}], (unsigned long long)({value}))",
    ("add", "f32"): "atomicAdd(&{array}[{index}], {value})",
    ("add", "f64"): "atomicAdd(&{array}[{index}], {value})",
}

#: Functions of CUDA's library that are within two units in the last place (CUDA programming guide, appendix on
#: mathematical functions) and keep the special values of Annex F.
_CUDA_MATH = _math_f() | {
    (op, r): op + ("f" if r == "f32" else "")
    for op in ("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "sin", "cos", "erf")
    for r in ("f32", "f64")
}

#: One instruction that passes NaN on, from compute capability 8.0 (PTX ISA, ``max``).
_CUDA_NAN = {
    (op, "f32"): f"""
^ float rlx_{op}_f32(float x, float y) {{
  float r;
  asm("{op}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}}"""
    for op in ("min", "max")
}

CUDA = Dialect(
    name="cuda",
    types=_types("int", "unsigned int", "long long", "unsigned long long"),
    storage=_storage(
        "unsigned char",
        "signed char",
        "short",
        "int",
        "long long",
        "unsigned char",
        "unsigned short",
        "unsigned int",
        "unsigned long long",
        "unsigned short",
        "unsigned short",
        "float",
        "double",
    ),
    suffix=_suffix("LL", "ULL"),
    function="static __device__ __forceinline__",
    frame=frames.cuda,
    group=lambda k: f"blockIdx.{_AXES[k]}",
    lane=lambda k: f"threadIdx.{_AXES[k]}",
    bits=_CUDA_BITS,
    math=_CUDA_MATH,
    support_for=_CUDA_NAN,
    barrier="__syncthreads();",
    exchange="__shfl_xor_sync(0xffffffffu, {value}, {distance})",
    shared="__shared__ {type} {name}[{size}];",
    unroll="#pragma unroll",
    atomics=_CUDA_ATOMICS,
    swap={"u32": "atomicCAS({pointer}, {old}, {new})", "u64": "atomicCAS({pointer}, {old}, {new})"},
)

HIP = Dialect(
    name="hip",
    types=CUDA.types,
    storage=CUDA.storage,
    suffix=CUDA.suffix,
    function=CUDA.function,
    frame=frames.cuda,
    group=CUDA.group,
    lane=CUDA.lane,
    bits=_CUDA_BITS,
    math=_math_f(),
    barrier=CUDA.barrier,
    shared=CUDA.shared,
    unroll=CUDA.unroll,
    atomics=_CUDA_ATOMICS,
    swap=CUDA.swap,
    preamble="#include <hip/hip_runtime.h>\n#pragma clang fp contract(off)\n",
)

METAL = Dialect(
    name="metal",
    types={k: v for k, v in _types("int", "uint", "long", "ulong").items() if k != "f64"},
    storage={k: v for k, v in OPENCL.storage.items() if k != "f64"},
    suffix=_suffix("L", "UL"),
    function="static inline",
    frame=frames.metal,
    group=lambda k: f"group_at.{_AXES[k]}",
    lane=lambda k: f"lane_at.{_AXES[k]}",
    bits={
        ("f32", "u32"): "as_type<uint>({0})",
        ("u32", "f32"): "as_type<float>({0})",
        ("f32", "i32"): "as_type<int>({0})",
        ("i32", "f32"): "as_type<float>({0})",
    },
    math={k: v for k, v in _math().items() if k[1] == "f32"},
    barrier="threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);",
    shared="threadgroup {type} {name}[{size}];",
    unroll="#pragma unroll",
    preamble="#include <metal_stdlib>\nusing namespace metal;\n#pragma clang fp contract(off)\n",
    pointer="device {type}*",
    atomics={
        (
            k,
            r,
        ): f"atomic_fetch_{k}_explicit((device atomic_{t}*)&{{array}}[{{index}}], {{value}}, memory_order_relaxed)"
        for k in ("add", "min", "max")
        for r, t in (("i32", "int"), ("u32", "uint"))
    },
)

_GLSL_BITS = {
    ("f32", "u32"): "floatBitsToUint({0})",
    ("u32", "f32"): "uintBitsToFloat({0})",
    ("f32", "i32"): "floatBitsToInt({0})",
    ("i32", "f32"): "intBitsToFloat({0})",
    ("f64", "u64"): "doubleBitsToUint64({0})",
    ("u64", "f64"): "uint64BitsToDouble({0})",
    ("f64", "i64"): "doubleBitsToInt64({0})",
    ("i64", "f64"): "int64BitsToDouble({0})",
}

GLSL = Dialect(
    name="glsl",
    types=_types("int", "uint", "int64_t", "uint64_t"),
    storage=_storage(
        "uint8_t",
        "int8_t",
        "int16_t",
        "int",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint",
        "uint64_t",
        "uint16_t",
        "uint16_t",
        "float",
        "double",
    ),
    suffix=_suffix("L", "UL", "", "lf"),
    function="",
    frame=frames.glsl,
    group=lambda k: f"gl_WorkGroupID.{_AXES[k]}",
    lane=lambda k: f"gl_LocalInvocationID.{_AXES[k]}",
    bits=_GLSL_BITS,
    math=_math("roundEven", abs="abs", fmod=""),
    barrier="memoryBarrierBuffer(); barrier();",
    shared="shared {type} {name}[{size}];",
    shared_at="file",
    preamble="#version 460\n#extension GL_EXT_shader_explicit_arithmetic_types : enable\n"
    "#extension GL_EXT_shader_8bit_storage : enable\n#extension GL_EXT_shader_16bit_storage : enable\n"
    "#extension GL_ARB_gpu_shader_int64 : enable\n",
    functional_cast=True,
    exact="precise ",
    one_kernel=True,
    atomics={
        (k, r): f"atomic{k.title()}({{array}}[{{index}}], {{value}})"
        for k in ("add", "min", "max")
        for r in ("i32", "u32")
    },
)

HLSL = Dialect(
    name="hlsl",
    types=_types("int", "uint", "int64_t", "uint64_t"),
    storage={
        "bool": "uint",
        "i16": "int16_t",
        "u16": "uint16_t",
        "i32": "int",
        "u32": "uint",
        "i64": "int64_t",
        "u64": "uint64_t",
        "f16": "uint16_t",
        "bf16": "uint16_t",
        "f32": "float",
        "f64": "double",
    },
    suffix=_suffix("LL", "ULL", "f", "L"),
    function="",
    frame=frames.hlsl,
    group=lambda k: f"group_at.{_AXES[k]}",
    lane=lambda k: f"lane_at.{_AXES[k]}",
    bits={
        ("f32", "u32"): "asuint({0})",
        ("u32", "f32"): "asfloat({0})",
        ("f32", "i32"): "asint({0})",
        ("i32", "f32"): "asfloat({0})",
        ("f64", "u64"): "rlx_double_bits({0})",
        ("u64", "f64"): "rlx_bits_double({0})",
        ("f64", "i64"): "int64_t(rlx_double_bits({0}))",
        ("i64", "f64"): "rlx_bits_double(uint64_t({0}))",
    },
    math={
        **{k: v for k, v in _math("round", abs="abs", fmod="").items() if k[1] == "f32" and k[0] != "fma"},
        ("fma", "f32"): "rlx_fma",
        ("fma", "f64"): "fma",
        ("abs", "f64"): "abs",
    },
    barrier="DeviceMemoryBarrier(); GroupMemoryBarrierWithGroupSync();",
    shared="groupshared {type} {name}[{size}];",
    shared_at="file",
    functional_cast=True,
    exact="precise ",
    one_kernel=True,
    unroll="[unroll]",
    support={
        # The language's mad may round twice; the product of two floats is exact in double.
        "rlx_fma": "float rlx_fma(float a, float b, float c) { "
        "return float(double(a) * double(b) + double(c)); }\n",
        "rlx_double_bits": "uint64_t rlx_double_bits(double v) { "
        "uint a, b; asuint(v, a, b); return (uint64_t(b) << 32) | a; }\n",
        "rlx_bits_double": "double rlx_bits_double(uint64_t v) { return asdouble(uint(v), uint(v >> 32)); }\n",
    },
    atomics={
        (k, r): f"Interlocked{k.title()}({{array}}[{{index}}], {{value}})"
        for k in ("add", "min", "max")
        for r in ("i32", "u32")
    },
)

DIALECTS: dict[str, Dialect] = {d.name: d for d in (C, OPENCL, CUDA, HIP, METAL, GLSL, HLSL)}
