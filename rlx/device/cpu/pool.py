"""The thread pool, as LLVM IR text: ``rlx_parallel_for(fn, bufs, n)`` calls ``fn(bufs, i)`` for i < n.

One job at a time. Its state is one 64-bit word, generation:32 | count:16 | next:16, and a thread claims the
next chunk by compare-and-swap on the whole word, so a late thread can never claim a chunk of another job.
The caller publishes the job, helps, and returns when every chunk is done; it never waits for a worker to
arrive. Workers spin for a while and then park. A call while a job runs (from inside a chunk, or from a
second thread) runs its own job serially. After a fork the child has no workers: ``rlx_pool_reset`` forgets
them, and the next job starts new ones.

Exports: ``rlx_parallel_for``, ``rlx_pool_threads`` (set the number of threads, the caller among them) and
``rlx_pool_reset``.
"""

from __future__ import annotations

from rlx.device.cpu.park import MAX_THREADS, Host, affinity, park, relax

#: Chunks a thread: enough to balance uneven ones, few enough that claiming is free. 512 * 64 < 2**16.
CHUNKS = 64
#: Looks at the word before a worker parks: about 50 us with the pause of x86 processors since 2017.
SPINS = 2000
#: Looks at the done counter before the caller offers its core to others between looks.
PATIENCE = 2000


def render_pool(host: Host) -> str:
    """The module text for that host."""
    parts = [_STATE, _WORK, _FOR, _START, park(host), affinity(host), relax(host)]
    return "\n".join(parts).replace("SIG_SETMASK", "3" if host.system == "darwin" else "2")


# Each hot word has cache lines of its own (128 bytes: the adjacent-line prefetcher fetches pairs).
_STATE = f"""
@next = internal global i64 0, align 128
@done = internal global i32 0, align 128
@busy = internal global i32 0, align 128
@sleepers = internal global i32 0, align 128
@wake = internal global i32 0, align 128
@fn = internal global ptr null, align 128
@bufs = internal global ptr null
@total = internal global i64 0
@grain = internal global i64 1
@threads = internal global i32 1, align 128
@started = internal global i32 0
@tids = internal global [{MAX_THREADS} x i32] zeroinitializer, align 128

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()

define void @rlx_pool_threads(i32 %n) {{
  %low = call i32 @llvm.smax.i32(i32 %n, i32 1)
  %t = call i32 @llvm.smin.i32(i32 %low, i32 {MAX_THREADS})
  store atomic i32 %t, ptr @threads seq_cst, align 4
  ret void
}}
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.smin.i32(i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define void @rlx_pool_reset() {{
  store atomic i64 0, ptr @next seq_cst, align 8
  store atomic i32 0, ptr @done seq_cst, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i32 0, ptr @started seq_cst, align 4
  call void @llvm.memset.p0.i64(ptr @tids, i8 0, i64 {4 * MAX_THREADS}, i1 false)
  call void @park_init()
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}}
"""

# Claim chunks until none is left; %start is the word as seen last. fn and bufs are read before the claim: a
# claim that succeeds proves that this job still runs, hence that they are its own.
_WORK = """
define internal void @work(i64 %start) {
entry:
  br label %claim
claim:
  %cur = phi i64 [ %start, %entry ], [ %after, %ran ], [ %seen, %try ]
  %counts = lshr i64 %cur, 16
  %count = and i64 %counts, 65535
  %idx = and i64 %cur, 65535
  %more = icmp ult i64 %idx, %count
  br i1 %more, label %try, label %out
try:
  %f = load atomic ptr, ptr @fn monotonic, align 8
  %b = load atomic ptr, ptr @bufs monotonic, align 8
  %n = load atomic i64, ptr @total monotonic, align 8
  %size = load atomic i64, ptr @grain monotonic, align 8
  %taken = add i64 %cur, 1
  %r = cmpxchg ptr @next, i64 %cur, i64 %taken acq_rel acquire
  %seen = extractvalue { i64, i1 } %r, 0
  %won = extractvalue { i64, i1 } %r, 1
  br i1 %won, label %run, label %claim
run:
  %lo = mul i64 %idx, %size
  %end = add i64 %lo, %size
  %hi = call i64 @llvm.umin.i64(i64 %end, i64 %n)
  call void @span(ptr %f, ptr %b, i64 %lo, i64 %hi)
  br label %ran
ran:
  %d = atomicrmw add ptr @done, i32 1 release
  %after = load atomic i64, ptr @next acquire, align 8
  br label %claim
out:
  ret void
}
declare i64 @llvm.umin.i64(i64, i64)

define internal void @span(ptr %f, ptr %b, i64 %lo, i64 %hi) {
entry:
  %any = icmp slt i64 %lo, %hi
  br i1 %any, label %loop, label %out
loop:
  %i = phi i64 [ %lo, %entry ], [ %i1, %loop ]
  call void %f(ptr %b, i64 %i)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %hi
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""

# The seq_cst store of the word and load of @sleepers pair with the worker's increment of @sleepers and load
# of the word: at least one of the two sees the other, so no worker sleeps through a job that could have
# woken it.
_FOR = f"""
define void @rlx_parallel_for(ptr %f, ptr %b, i64 %n) {{
entry:
  %threads = load atomic i32, ptr @threads monotonic, align 4
  %many = icmp sgt i64 %n, 1
  %several = icmp sgt i32 %threads, 1
  %share = and i1 %many, %several
  br i1 %share, label %lock, label %serial
lock:
  %l = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue {{ i32, i1 }} %l, 1
  br i1 %got, label %check, label %serial
serial:
  call void @span(ptr %f, ptr %b, i64 0, i64 %n)
  ret void
check:
  %have = load atomic i32, ptr @started monotonic, align 4
  %want = sub i32 %threads, 1
  %few = icmp slt i32 %have, %want
  br i1 %few, label %start, label %publish
start:
  call void @start_workers(i32 %have, i32 %want)
  br label %publish
publish:
  call void @make_room(i32 %want)
  %threads64 = zext i32 %threads to i64
  %most = mul i64 %threads64, {CHUNKS}
  %round = add i64 %n, %most
  %round1 = sub i64 %round, 1
  %size = udiv i64 %round1, %most
  %up = add i64 %n, %size
  %up1 = sub i64 %up, 1
  %count = udiv i64 %up1, %size
  store atomic ptr %f, ptr @fn monotonic, align 8
  store atomic ptr %b, ptr @bufs monotonic, align 8
  store atomic i64 %n, ptr @total monotonic, align 8
  store atomic i64 %size, ptr @grain monotonic, align 8
  store atomic i32 0, ptr @done monotonic, align 4
  %old = load atomic i64, ptr @next monotonic, align 8
  %gen = lshr i64 %old, 32
  %gen1 = add i64 %gen, 1
  %high = shl i64 %gen1, 32
  %mid = shl i64 %count, 16
  %word = or i64 %high, %mid
  store atomic i64 %word, ptr @next seq_cst, align 8
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %rouse, label %help
rouse:
  call void @unpark()
  br label %help
help:
  call void @work(i64 %word)
  %count32 = trunc i64 %count to i32
  br label %wait
wait:
  %spins = phi i32 [ 0, %help ], [ %spins1, %relax ], [ %spins, %yield ]
  %d = load atomic i32, ptr @done acquire, align 4
  %all = icmp eq i32 %d, %count32
  br i1 %all, label %out, label %idle
idle:
  %tired = icmp ugt i32 %spins, {PATIENCE}
  br i1 %tired, label %yield, label %relax
relax:
  call void @relax()
  %spins1 = add i32 %spins, 1
  br label %wait
yield:
  %y = call i32 @sched_yield()
  br label %wait
out:
  store atomic i32 0, ptr @busy release, align 4
  ret void
}}
"""

# Workers block every signal, so that handlers run on the program's own threads. A worker whose number is
# past the present limit goes back to sleep: lowering the number of threads needs no thread to end.
_START = f"""
define internal void @start_workers(i32 %have, i32 %want) cold {{
entry:
  %id = alloca i64
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  %f = call i32 @sigfillset(ptr %all)
  %m = call i32 @pthread_sigmask(i32 SIG_SETMASK, ptr %all, ptr %old)
  br label %loop
loop:
  %i = phi i32 [ %have, %entry ], [ %i1, %made ]
  %more = icmp slt i32 %i, %want
  br i1 %more, label %make, label %out
make:
  %i64 = zext i32 %i to i64
  %arg = inttoptr i64 %i64 to ptr
  %rc = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr %arg)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %made, label %out
made:
  %thread = load i64, ptr %id
  %dt = call i32 @pthread_detach(i64 %thread)
  %i1 = add i32 %i, 1
  br label %loop
out:
  store atomic i32 %i, ptr @started release, align 4
  %r = call i32 @pthread_sigmask(i32 SIG_SETMASK, ptr %old, ptr null)
  ret void
}}

define internal ptr @worker(ptr %arg) {{
entry:
  %id64 = ptrtoint ptr %arg to i64
  %id = trunc i64 %id64 to i32
  call void @arrive(i64 %id64)
  br label %fresh
fresh:
  %last = phi i64 [ 0, %entry ], [ %last, %park ], [ %gen, %done ], [ %gen, %seen ]
  br label %look
look:
  %s = phi i32 [ 0, %fresh ], [ %s1, %wait ]
  %cur = load atomic i64, ptr @next acquire, align 8
  %gen = lshr i64 %cur, 32
  %old = icmp eq i64 %gen, %last
  br i1 %old, label %wait, label %seen
wait:
  call void @relax()
  %s1 = add i32 %s, 1
  %tired = icmp ugt i32 %s1, {SPINS}
  br i1 %tired, label %park, label %look
park:
  call void @park(i64 %last)
  br label %fresh
seen:
  %threads = load atomic i32, ptr @threads monotonic, align 4
  %limit = sub i32 %threads, 1
  %mine = icmp slt i32 %id, %limit
  br i1 %mine, label %done, label %fresh
done:
  call void @work(i64 %cur)
  br label %fresh
}}
"""
