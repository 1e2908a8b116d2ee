"""The caller of compiled programs, as LLVM IR text: guards, pointers, outputs and the launch, without the interpreter.

It reads a *table* that :mod:`rlx.device.cpu.entry` makes: 64-bit words that hold numbers and addresses of objects. The
objects are kept alive by the tuple whose first item is the table (a ``bytes``). ``*`` marks a list.

- head: context, generation of the flags, number of watched variables of the environment, their values*, first entry.
- entry: leaves, next entry, function, fixed inputs, outputs, constants, bytes of the arena, whether the lock is let go,
  whether outputs become Arrays, form of the result, what the form needs, number of arguments; then the arguments*, the
  addresses of the fixed inputs* and constants*, and the outputs*.
- argument: a tag and what it compares; a container is followed by its children.
- output: kind, NumPy's descr, axes, bytes, sizes*.

Exports ``rlx_call`` (a method: its object holds the tuple in a slot, and the Python method is called when nothing
matches), ``rlx_run`` (a function bound to the tuple; None when nothing matches) and ``rlx_box`` (an Array of a kind, a
storage and work). They hold CPython's lock but for launches that say to let it go.
Offsets of slots are given as measured; the layout of ``ob_type``, of NumPy's public
array struct and of the data of tuple and bytes is checked at start-up.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx.device.cpu.calls_launch import LAUNCH, OUTPUT, RESULT
from rlx.device.cpu.calls_match import MATCH

#: Words of the context.
CONTEXT = ("array", "cell", "storage", "ndarray", "float", "int", "bool", "tuple", "list", "dict", "none", "false",
           "slow", "generation", "environ", "new", "base", "bytes_descr", "names")
#: Words in front of an entry's arguments.
HEAD = 12
#: Tags of arguments: see the module.
ARRAY, NDARRAY, FLOAT, INT, BOOL, STORAGE, INT_AS_F64, FLOAT_AS_F32, SAME, TUPLE, LIST, DICT = range(12)
#: Forms of results: the one output, a tuple or list of them, a dict with keys, or what a function makes of the tuple.
ONE, A_TUPLE, A_LIST, A_DICT, MADE = range(5)
#: Most buffers and leaves of an entry, and bytes of arena: they live on the stack.
BUFFERS, LEAVES, ARENA = 256, 64, 32768
#: From this size on outputs start at a multiple of 64 bytes.
LARGE = 4096


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where the slots of Array, Cell, Storage and of the callable are, in bytes."""

    cell: int
    weak: int
    kind: int
    storage: int
    value: int
    where: int
    work: int
    array: int
    address: int
    table: int


def render(at: Offsets) -> str:
    """The module's text."""
    named = {"CELL": at.cell, "WEAK": at.weak, "KIND": at.kind, "STORAGE": at.storage, "VALUE": at.value,
             "WHERE": at.where, "WORK": at.work, "ARRAY": at.array, "ADDRESS": at.address, "TABLE": at.table,
             "BUFFERS": BUFFERS, "LEAVES": LEAVES, "LARGE": LARGE, "HEAD": HEAD * 8}
    named.update({f"CX_{n}": i * 8 for i, n in enumerate(CONTEXT)})
    text = "\n".join([_DECLARE, _READ, _PROBE, MATCH, OUTPUT, RESULT, LAUNCH, _DISPATCH, _ENTRY])
    for name in sorted(named, key=len, reverse=True):
        text = text.replace(f"${name}$", str(named[name]))
    return text


_DECLARE = """
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyLong_FromVoidPtr(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare double @PyLong_AsDouble(ptr)
declare double @PyFloat_AsDouble(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyTuple_New(i64)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyList_New(i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyDict_New()
declare i64 @PyDict_Size(ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @PyErr_Clear()
"""

# What the test at start-up runs: the sum of two numbers.
_PROBE = """
define void @rlx_probe(ptr %io, ptr %arena) {
  %a = call ptr @word(ptr %io, i64 0)
  %b = call ptr @word(ptr %io, i64 8)
  %c = call ptr @word(ptr %io, i64 16)
  %x = load double, ptr %a, align 8
  %y = load double, ptr %b, align 8
  %z = fadd double %x, %y
  store double %z, ptr %c, align 8
  ret void
}
"""

_READ = """
define internal ptr @word(ptr %base, i64 %bytes) alwaysinline {
  %p = getelementptr i8, ptr %base, i64 %bytes
  %v = load ptr, ptr %p, align 8
  ret ptr %v
}
define internal i64 @number(ptr %base, i64 %bytes) alwaysinline {
  %p = getelementptr i8, ptr %base, i64 %bytes
  %v = load i64, ptr %p, align 8
  ret i64 %v
}
define internal i1 @is_a(ptr %x, ptr %type) alwaysinline {
  %t = call ptr @word(ptr %x, i64 8)
  %r = icmp eq ptr %t, %type
  ret i1 %r
}
define internal void @put(ptr %base, i64 %bytes, ptr %v) alwaysinline {
  %p = getelementptr i8, ptr %base, i64 %bytes
  store ptr %v, ptr %p, align 8
  ret void
}
"""

# The first entry of table %t whose guards hold, launched; the address 1 when there is none, null on error.
_DISPATCH = """
define internal ptr @dispatch(ptr %t, ptr %argv, i64 %n) {
entry:
  %bufs = alloca [$BUFFERS$ x ptr], align 64
  %scratch = alloca [$LEAVES$ x i64], align 16
  %st = alloca [6 x i64], align 16
  %owners = alloca [$LEAVES$ x ptr], align 16
  %cx = call ptr @word(ptr %t, i64 0)
  call void @put(ptr %st, i64 24, ptr %cx)
  %watched = call i64 @number(ptr %t, i64 16)
  %some = icmp ne i64 %watched, 0
  br i1 %some, label %flags, label %first
flags:
  %gp = call ptr @word(ptr %cx, i64 $CX_generation$)
  %g = load i64, ptr %gp, align 8
  %g.want = call i64 @number(ptr %t, i64 8)
  %g.same = icmp eq i64 %g, %g.want
  br i1 %g.same, label %environ, label %none
environ:
  %env = call ptr @word(ptr %cx, i64 $CX_environ$)
  br label %e.loop
e.loop:
  %e.i = phi i64 [ 0, %environ ], [ %e.i1, %e.next ]
  %e.more = icmp slt i64 %e.i, %watched
  br i1 %e.more, label %e.one, label %first
e.one:
  %e.at = mul i64 %e.i, 8
  %e.ka = add i64 %e.at, $CX_names$
  %e.key = call ptr @word(ptr %cx, i64 %e.ka)
  %e.wa = add i64 %e.at, 24
  %e.want = call ptr @word(ptr %t, i64 %e.wa)
  %e.v = call ptr @PyDict_GetItemWithError(ptr %env, ptr %e.key)
  %e.same = icmp eq ptr %e.v, %e.want
  br i1 %e.same, label %e.next, label %none
e.next:
  %e.i1 = add i64 %e.i, 1
  br label %e.loop
first:
  %f.w = add i64 %watched, 3
  %f.p = getelementptr i64, ptr %t, i64 %f.w
  br label %try
try:
  %link = phi ptr [ %f.p, %first ], [ %next.p, %miss ]
  %off = load i64, ptr %link, align 8
  %last = icmp eq i64 %off, 0
  br i1 %last, label %none, label %look
look:
  %e = getelementptr i64, ptr %t, i64 %off
  %next.p = getelementptr i8, ptr %e, i64 8
  %nargs = call i64 @number(ptr %e, i64 88)
  %same = icmp eq i64 %nargs, %n
  br i1 %same, label %args, label %miss
args:
  %w = getelementptr i8, ptr %e, i64 $HEAD$
  store ptr %w, ptr %st, align 8
  call void @put(ptr %st, i64 8, ptr %bufs)
  call void @put(ptr %st, i64 16, ptr %scratch)
  call void @put(ptr %st, i64 40, ptr %owners)
  br label %a.loop
a.loop:
  %i = phi i64 [ 0, %args ], [ %i1, %a.next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %a.one, label %hit
a.one:
  %xp = getelementptr ptr, ptr %argv, i64 %i
  %x = load ptr, ptr %xp, align 8
  %ok = call i1 @match(ptr %st, ptr %x)
  br i1 %ok, label %a.next, label %undo
undo:
  %own.end = call i64 @number(ptr %st, i64 40)
  %own.start = ptrtoint ptr %owners to i64
  %own.bytes = sub i64 %own.end, %own.start
  %own.n = udiv i64 %own.bytes, 8
  call void @release(ptr %owners, i64 %own.n)
  br label %miss
a.next:
  %i1 = add i64 %i, 1
  br label %a.loop
miss:
  br label %try
hit:
  %end = call ptr @word(ptr %st, i64 0)
  %leaves = call i64 @number(ptr %e, i64 0)
  %r = call ptr @launch(ptr %cx, ptr %e, ptr %end, ptr %bufs)
  call void @release(ptr %owners, i64 %leaves)
  ret ptr %r
none:
  ret ptr inttoptr (i64 1 to ptr)
}
"""

# The data of a bytes object starts 32 bytes in, the first item of a tuple 24.
_ENTRY = """
define ptr @rlx_box(ptr %self, ptr %argv, i64 %n) {
entry:
  %cx = load ptr, ptr @context, align 8
  %three = icmp eq i64 %n, 3
  br i1 %three, label %make, label %wrong
wrong:
  %none = call ptr @word(ptr %cx, i64 $CX_none$)
  call void @Py_IncRef(ptr %none)
  ret ptr %none
make:
  %kind = load ptr, ptr %argv, align 8
  %storage = call ptr @word(ptr %argv, i64 8)
  %work = call ptr @word(ptr %argv, i64 16)
  call void @Py_IncRef(ptr %storage)
  %a = call ptr @boxed(ptr %cx, ptr %kind, ptr %storage, ptr %work)
  ret ptr %a
}

define ptr @rlx_run(ptr %held, ptr %argv, i64 %n) {
  %bytes = call ptr @word(ptr %held, i64 24)
  %t = getelementptr i8, ptr %bytes, i64 32
  call void @Py_IncRef(ptr %held)
  %r = call ptr @dispatch(ptr %t, ptr %argv, i64 %n)
  %miss = icmp eq ptr %r, inttoptr (i64 1 to ptr)
  br i1 %miss, label %none, label %out
none:
  %cx = call ptr @word(ptr %t, i64 0)
  %x = call ptr @word(ptr %cx, i64 $CX_none$)
  call void @Py_IncRef(ptr %x)
  br label %out
out:
  %v = phi ptr [ %r, %0 ], [ %x, %none ]
  call void @Py_DecRef(ptr %held)
  ret ptr %v
}

@context = internal global ptr null
define void @rlx_context(ptr %cx) {
  store ptr %cx, ptr @context, align 8
  ret void
}

define ptr @rlx_call(ptr %self, ptr %argv, i64 %n, ptr %names) {
entry:
  %plain = icmp eq ptr %names, null
  %held = call ptr @word(ptr %self, i64 $TABLE$)
  %have = icmp ne ptr %held, null
  %try = and i1 %plain, %have
  br i1 %try, label %look, label %slow
look:
  %cx0 = load ptr, ptr @context, align 8
  %tt = call ptr @word(ptr %cx0, i64 $CX_tuple$)
  %is = call i1 @is_a(ptr %held, ptr %tt)
  br i1 %is, label %run, label %slow
run:
  %bytes = call ptr @word(ptr %held, i64 24)
  %t = getelementptr i8, ptr %bytes, i64 32
  call void @Py_IncRef(ptr %held)
  %r = call ptr @dispatch(ptr %t, ptr %argv, i64 %n)
  call void @Py_DecRef(ptr %held)
  %miss = icmp eq ptr %r, inttoptr (i64 1 to ptr)
  br i1 %miss, label %slow, label %out
out:
  ret ptr %r
slow:
  %cx = load ptr, ptr @context, align 8
  %f = call ptr @word(ptr %cx, i64 $CX_slow$)
  br i1 %plain, label %count, label %named
named:
  %k = call i64 @PyTuple_Size(ptr %names)
  br label %count
count:
  %extra = phi i64 [ 0, %slow ], [ %k, %named ]
  %total = add i64 %n, %extra
  %room = add i64 %total, 1
  %all = alloca ptr, i64 %room, align 16
  store ptr %self, ptr %all, align 8
  %rest = getelementptr ptr, ptr %all, i64 1
  %size = mul i64 %total, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %argv, i64 %size, i1 false)
  %n1 = add i64 %n, 1
  %s = call ptr @PyObject_Vectorcall(ptr %f, ptr %all, i64 %n1, ptr %names)
  ret ptr %s
}
"""
