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
from rlx.device.cpu import cache as disk

#: Part of every key: raise it when the way objects are compiled changes.
FORMAT = 1
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
    key = key_of(text)
    data = disk.read(key)
    if data is not None:
        try:
            return _link(data, text, exports, resolve)
        except RuntimeError:  # whole, but not an object that this linker takes: made again below
            pass
    data = compile_object(text)
    disk.write(key, data)
    try:
        return _link(data, text, exports, resolve)
    except RuntimeError as e:
        raise CompileError("the compiled module cannot be linked", why=str(e),
                           do="a function it declares exists in no library of this process") from None


def key_of(text: str) -> str:
    """The name of the module's object in the cache."""
    target = host()
    facts = f"{FORMAT} {LEVEL} {target.llvm} {target.triple} {target.cpu} {target.features}\n"
    return hashlib.sha256(facts.encode() + text.encode()).hexdigest()


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


def _link(data: bytes, text: str, exports: tuple[str, ...], resolve: Resolver) -> Library:
    llvm = _llvm()
    builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
    for name in exports:
        builder.export_symbol(name)
    for name in sorted(set(_DECLARED.findall(text))):
        if not name.startswith("llvm.") and (address := resolve(name)) is not None:
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
