"""From LLVM IR text to callable native code: compile for this host, keep the object on disk, link it.

The key of an object is a digest of the module's text and everything else that decides its bytes, so a warm
start parses no IR. Objects refer to outside functions by name; each ``declare`` in the text is resolved
when it is linked. llvmlite is imported on first use.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlx.core.errors import CompileError, DeviceError
from rlx.device import _cache as disk

#: Part of every key: raise it when the way objects are compiled changes.
FORMAT = 3
#: LLVM's optimisation level, for passes and code generation.
LEVEL = 3
_DECLARED = re.compile(r"^declare [^@\n]*@([\w.$-]+)\(", re.MULTILINE)
_serial = itertools.count()
_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class Target:
    """What code is compiled for: the host's processor and its features, in LLVM's spelling."""

    triple: str
    cpu: str
    features: str
    llvm: str

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature, such as ``avx2``."""
        return f"+{feature}" in self.features.split(",")


@dataclass(frozen=True, slots=True)
class Library:
    """Linked code. Its addresses are valid while this object lives."""

    addresses: dict[str, int]
    tracker: Any

    def __getitem__(self, symbol: str) -> int:
        return self.addresses[symbol]


#: The address of an outside function by name, or None to look in the process (libc, libm).
Resolver = Callable[[str], int | None]


@cache
def host() -> Target:
    """This process's target."""
    llvm = _llvm()
    features = llvm.get_host_cpu_features()
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(),
                  ",".join(("+" if features[f] else "-") + f for f in sorted(features)),
                  ".".join(map(str, llvm.llvm_version_info)))


def absent() -> str | None:
    """Why code cannot be compiled here, or None."""
    from importlib.util import find_spec
    if find_spec("llvmlite") is None:
        return "llvmlite is not installed (pip install llvmlite)"
    return None


def load(text: str, exports: tuple[str, ...], resolve: Resolver) -> Library:
    """Link the module and give the addresses of ``exports``; compiles only what the disk cache does not have.

    Raises CompileError for text that LLVM does not take.
    """
    return load_lazily(text, lambda: text, exports, resolve)


def load_lazily(facts: str, render: Callable[[], str], exports: tuple[str, ...], resolve: Resolver) -> Library:
    """Like :func:`load`, for a module whose text ``facts`` decide: rendered only when its object is not on disk."""
    key = key_of(facts)
    entry = disk.read(key)
    if entry is not None:
        try:
            return _link(entry, exports, resolve)
        except (RuntimeError, ValueError):  # whole, but not an object that this linker takes: made again below
            pass
    text = render()
    names = sorted({n for n in _DECLARED.findall(text) if not n.startswith("llvm.")})
    entry = " ".join(names).encode() + b"\n" + compile_object(text)
    disk.write(key, entry)
    try:
        return _link(entry, exports, resolve)
    except RuntimeError as e:
        raise CompileError("the compiled module cannot be linked", why=str(e),
                           do="a function it declares exists in no library of this process") from None


def key_of(facts: str) -> str:
    """The name in the cache of the object that these facts (or the module's text) decide."""
    target = host()
    about = f"{FORMAT} {LEVEL} {target.llvm} {target.triple} {target.cpu} {target.features}\n"
    return hashlib.sha256(about.encode() + facts.encode()).hexdigest()


def compile_object(text: str) -> bytes:
    """The module as object code for this host, optimised with the loop vectoriser on."""
    llvm = _llvm()
    with _lock:
        machine = _machine()
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as e:
            raise CompileError("LLVM does not take the module's text", why=str(e).strip(),
                               do="report this as a bug, with the text (RLX_DUMP=directory)") from None
        module.triple = host().triple
        module.data_layout = str(machine.target_data)
        with module:
            options = llvm.create_pipeline_tuning_options(speed_level=LEVEL)
            options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = True
            builder = llvm.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
            return bytes(machine.emit_object(module))


def permanent(library: Library) -> Library:
    """Keep the code for ever, through the interpreter's shutdown: threads may still be running in it."""
    library.tracker.detach()
    return library


def _link(entry: bytes, exports: tuple[str, ...], resolve: Resolver) -> Library:
    """Link an entry of the cache: the names it needs from outside on the first line, then the object."""
    llvm = _llvm()
    names, data = entry.split(b"\n", 1)
    builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
    for name in exports:
        builder.export_symbol(name)
    for name in names.decode().split():
        if (address := resolve(name)) is not None:
            builder.import_symbol(name, address)
    with _lock:
        tracker = builder.link(_linker(), f"rlx{next(_serial)}")
    return Library({name: int(tracker[name]) for name in exports}, tracker)


@cache
def _llvm() -> Any:
    """llvmlite's binding, with the host's target set up."""
    if (reason := absent()) is not None:
        raise DeviceError("native code cannot be compiled", why=reason, do="install it")
    import llvmlite.binding as llvm
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def _machine() -> Any:
    target = host()
    return _llvm().Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=LEVEL, reloc="pic", codemodel="default", jit=True)


@cache
def _linker() -> Any:
    """The process's one linker. It is never disposed of: the pool's threads outlive the interpreter."""
    linker = _llvm().create_lljit_compiler(_machine(), use_jit_link=True)
    linker._owned = True
    return linker
