"""What the pool asks of the system, as LLVM IR text: to sleep and wake, to keep off a core, to spin."""

from __future__ import annotations

from dataclasses import dataclass

#: Most threads, the caller among them. With 64 chunks a thread the count of chunks keeps within 16 bits.
MAX_THREADS = 512
#: Workers that the caller keeps off its own core; with more, the kernel has idle cores to choose from.
MAX_MOVED = 8
#: The processors whose spin hint and system call numbers are known here.
MACHINES = ("x86_64", "amd64", "aarch64", "arm64")


@dataclass(frozen=True, slots=True)
class Host:
    """What the text depends on: the system (``linux`` or ``darwin``), the machine, and how to park."""

    system: str
    machine: str
    futex: bool

    @property
    def arm(self) -> bool:
        return self.machine in ("aarch64", "arm64")


def park(host: Host) -> str:
    """``@park(last)`` sleeps until the word has another generation; ``@unpark()`` wakes all sleepers."""
    return _futex(host) if host.futex else _COND


def affinity(host: Host) -> str:
    """``@arrive(id)`` as a worker starts, and ``@make_room(workers)`` before a job."""
    return _keep_off(host) if host.system == "linux" else _NO_AFFINITY


def _futex(host: Host) -> str:
    """Park on the address of @wake. 128 and 129 are the private forms of wait and wake."""
    number = 98 if host.arm else 202
    return f"""
declare i64 @syscall(i64, ...)
define internal void @park_init() {{
  ret void
}}
define internal void @park(i64 %last) {{
  %w = load atomic i32, ptr @wake acquire, align 4
  %a = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %cur = load atomic i64, ptr @next seq_cst, align 8
  %gen = lshr i64 %cur, 32
  %same = icmp eq i64 %gen, %last
  br i1 %same, label %sleep, label %out
sleep:
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr @wake, i32 128, i32 %w, ptr null, ptr null, i32 0)
  br label %out
out:
  %b = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  ret void
}}
define internal void @unpark() {{
  %a = atomicrmw add ptr @wake, i32 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr @wake, i32 129, i32 {MAX_THREADS})
  ret void
}}
"""


# 128 bytes hold a mutex or a condition variable of every system in use (the largest is 64).
_COND = """
@mutex = internal global [128 x i8] zeroinitializer, align 128
@cond = internal global [128 x i8] zeroinitializer, align 128
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
define internal void @park_init() {
  %a = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr @cond, ptr null)
  ret void
}
define internal void @park(i64 %last) {
entry:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %a = atomicrmw add ptr @sleepers, i32 1 seq_cst
  br label %look
look:
  %cur = load atomic i64, ptr @next seq_cst, align 8
  %gen = lshr i64 %cur, 32
  %same = icmp eq i64 %gen, %last
  br i1 %same, label %sleep, label %out
sleep:
  %w = call i32 @pthread_cond_wait(ptr @cond, ptr @mutex)
  br label %look
out:
  %b = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @unpark() {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @cond)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
"""

_NO_AFFINITY = """
define internal void @arrive(i64 %id) {
  ret void
}
define internal void @make_room(i32 %want) {
  ret void
}
"""


def _keep_off(host: Host) -> str:
    """Keep the workers off the caller's core.

    A worker is often woken on the core of the thread that woke it, and then waits for that thread, which
    waits for the worker. So when the caller has moved to another core, each worker is allowed every core of
    the process but that one. 1024 is the size of a ``cpu_set_t`` in bits.
    """
    gettid = 178 if host.arm else 186
    return f"""
@home = internal global i32 -1, align 128
@allowed = internal global [16 x i64] zeroinitializer, align 8
declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)
define void @rlx_pool_allowed(ptr %mask) {{
  call void @llvm.memcpy.p0.p0.i64(ptr @allowed, ptr %mask, i64 128, i1 false)
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @arrive(i64 %id) {{
  %t = call i64 (i64, ...) @syscall(i64 {gettid})
  %t32 = trunc i64 %t to i32
  %slot = getelementptr i32, ptr @tids, i64 %id
  store atomic i32 %t32, ptr %slot seq_cst, align 4
  store atomic i32 -1, ptr @home seq_cst, align 4
  ret void
}}
define internal void @make_room(i32 %want) {{
entry:
  %few = icmp ule i32 %want, {MAX_MOVED}
  br i1 %few, label %where, label %out
where:
  %cpu = call i32 @sched_getcpu()
  %home = load atomic i32, ptr @home monotonic, align 4
  %same = icmp eq i32 %cpu, %home
  %known = icmp ult i32 %cpu, 1024
  %unknown = xor i1 %known, true
  %stay = or i1 %same, %unknown
  br i1 %stay, label %out, label %move
move:
  store atomic i32 %cpu, ptr @home monotonic, align 4
  call void @move_workers(i32 %cpu, i32 %want)
  br label %out
out:
  ret void
}}
define internal void @move_workers(i32 %cpu, i32 %want) cold {{
entry:
  %mask = alloca [16 x i64], align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %mask, ptr @allowed, i64 128, i1 false)
  %cpu64 = zext i32 %cpu to i64
  %word = lshr i64 %cpu64, 6
  %bit = and i64 %cpu64, 63
  %one = shl i64 1, %bit
  %not = xor i64 %one, -1
  %at = getelementptr i64, ptr %mask, i64 %word
  %old = load i64, ptr %at
  %new = and i64 %old, %not
  store i64 %new, ptr %at
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i32 %i, %want
  br i1 %more, label %one_worker, label %out
one_worker:
  %i64 = zext i32 %i to i64
  %slot = getelementptr i32, ptr @tids, i64 %i64
  %tid = load atomic i32, ptr %slot monotonic, align 4
  %there = icmp ne i32 %tid, 0
  br i1 %there, label %set, label %next
set:
  %r = call i32 @sched_setaffinity(i32 %tid, i64 128, ptr %mask)
  br label %next
next:
  %i1 = add i32 %i, 1
  br label %loop
out:
  ret void
}}
""" + ("" if host.futex else "declare i64 @syscall(i64, ...)\n")


def relax(host: Host) -> str:
    """Tell the core that this is a spin loop."""
    if host.arm:
        return ("declare void @llvm.aarch64.hint(i32)\ndefine internal void @relax() alwaysinline {\n"
                "  call void @llvm.aarch64.hint(i32 1)\n  ret void\n}\n")
    return ("declare void @llvm.x86.sse2.pause()\ndefine internal void @relax() alwaysinline {\n"
            "  call void @llvm.x86.sse2.pause()\n  ret void\n}\n")
