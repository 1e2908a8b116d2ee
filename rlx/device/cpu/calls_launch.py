"""The part of :mod:`rlx.device.cpu.calls` that makes outputs, launches, and makes the result of them."""

# A storage with fresh memory for the output at %w; a large one starts at a cache line. Null on error.
OUTPUT = """
define internal ptr @fresh(ptr %cx, ptr %w) {
entry:
  %type = call ptr @word(ptr %cx, i64 $CX_ndarray$)
  %new = call ptr @word(ptr %cx, i64 $CX_new$)
  %descr = call ptr @word(ptr %w, i64 8)
  %nd64 = call i64 @number(ptr %w, i64 16)
  %nd = trunc i64 %nd64 to i32
  %bytes = call i64 @number(ptr %w, i64 24)
  %dims = getelementptr i8, ptr %w, i64 32
  %n = alloca i64
  %large = icmp sge i64 %bytes, $LARGE$
  br i1 %large, label %big, label %small
small:
  call void @Py_IncRef(ptr %descr)
  %a0 = call ptr %new(ptr %type, ptr %descr, i32 %nd, ptr %dims, ptr null, ptr null, i32 0, ptr null)
  br label %made
big:
  %raw.n = add i64 %bytes, 64
  store i64 %raw.n, ptr %n, align 8
  %u8 = call ptr @word(ptr %cx, i64 $CX_bytes_descr$)
  call void @Py_IncRef(ptr %u8)
  %raw = call ptr %new(ptr %type, ptr %u8, i32 1, ptr %n, ptr null, ptr null, i32 0, ptr null)
  %raw.no = icmp eq ptr %raw, null
  br i1 %raw.no, label %fail, label %view
view:
  %p = call ptr @word(ptr %raw, i64 16)
  %pi = ptrtoint ptr %p to i64
  %neg = sub i64 0, %pi
  %skip = and i64 %neg, 63
  %start = getelementptr i8, ptr %p, i64 %skip
  call void @Py_IncRef(ptr %descr)
  %a1 = call ptr %new(ptr %type, ptr %descr, i32 %nd, ptr %dims, ptr null, ptr %start, i32 1281, ptr null)
  %a1.no = icmp eq ptr %a1, null
  br i1 %a1.no, label %drop, label %own
drop:
  call void @Py_DecRef(ptr %raw)
  br label %fail
own:
  %base = call ptr @word(ptr %cx, i64 $CX_base$)
  %rc = call i32 %base(ptr %a1, ptr %raw)
  %rc.no = icmp ne i32 %rc, 0
  br i1 %rc.no, label %undo, label %made
undo:
  call void @Py_DecRef(ptr %a1)
  br label %fail
made:
  %a = phi ptr [ %a0, %small ], [ %a1, %own ]
  %a.no = icmp eq ptr %a, null
  br i1 %a.no, label %fail, label %box
box:
  %st = call ptr @word(ptr %cx, i64 $CX_storage$)
  %s = call ptr @PyType_GenericAlloc(ptr %st, i64 0)
  %s.no = icmp eq ptr %s, null
  br i1 %s.no, label %unbox, label %fill
unbox:
  call void @Py_DecRef(ptr %a)
  br label %fail
fill:
  call void @put(ptr %s, i64 $ARRAY$, ptr %a)
  %data = call ptr @word(ptr %a, i64 16)
  %at = call ptr @PyLong_FromVoidPtr(ptr %data)
  %at.no = icmp eq ptr %at, null
  br i1 %at.no, label %empty, label %done
empty:
  call void @Py_DecRef(ptr %s)
  br label %fail
done:
  call void @put(ptr %s, i64 $ADDRESS$, ptr %at)
  ret ptr %s
fail:
  ret ptr null
}

; An Array over a cell with these parts, of which it takes the reference to the storage; null on error.
define internal ptr @boxed(ptr %cx, ptr %kind, ptr %s, ptr %work) {
entry:
  %ct = call ptr @word(ptr %cx, i64 $CX_cell$)
  %cell = call ptr @PyType_GenericAlloc(ptr %ct, i64 0)
  %cell.no = icmp eq ptr %cell, null
  br i1 %cell.no, label %drop, label %fill
drop:
  call void @Py_DecRef(ptr %s)
  ret ptr null
fill:
  call void @put(ptr %cell, i64 $STORAGE$, ptr %s)
  call void @Py_IncRef(ptr %kind)
  call void @put(ptr %cell, i64 $KIND$, ptr %kind)
  %none = call ptr @word(ptr %cx, i64 $CX_none$)
  call void @Py_IncRef(ptr %work)
  call void @put(ptr %cell, i64 $WORK$, ptr %work)
  call void @Py_IncRef(ptr %none)
  call void @put(ptr %cell, i64 $VALUE$, ptr %none)
  call void @Py_IncRef(ptr %none)
  call void @put(ptr %cell, i64 $WHERE$, ptr %none)
  %at = call ptr @word(ptr %cx, i64 $CX_array$)
  %a = call ptr @PyType_GenericAlloc(ptr %at, i64 0)
  %a.no = icmp eq ptr %a, null
  br i1 %a.no, label %undo, label %done
undo:
  call void @Py_DecRef(ptr %cell)
  ret ptr null
done:
  call void @put(ptr %a, i64 $CELL$, ptr %cell)
  %false = call ptr @word(ptr %cx, i64 $CX_false$)
  call void @Py_IncRef(ptr %false)
  call void @put(ptr %a, i64 $WEAK$, ptr %false)
  ret ptr %a
}
"""

# What the call gives: %outs holds %n references, which this takes. Null on error.
RESULT = """
define internal void @release(ptr %outs, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %out
one:
  %p = getelementptr ptr, ptr %outs, i64 %i
  %x = load ptr, ptr %p, align 8
  %none = icmp eq ptr %x, null
  br i1 %none, label %step, label %drop
drop:
  call void @Py_DecRef(ptr %x)
  br label %step
step:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}

define internal ptr @result(i64 %form, ptr %with, ptr %outs, i64 %n) {
entry:
  switch i64 %form, label %tuple [ i64 0, label %one  i64 2, label %list  i64 3, label %dict ]
one:
  %x = load ptr, ptr %outs, align 8
  ret ptr %x
fail:
  call void @release(ptr %outs, i64 %n)
  ret ptr null

tuple:
  %t = call ptr @PyTuple_New(i64 %n)
  %t.no = icmp eq ptr %t, null
  br i1 %t.no, label %fail, label %t.loop
t.loop:
  %t.i = phi i64 [ 0, %tuple ], [ %t.i1, %t.put ]
  %t.more = icmp slt i64 %t.i, %n
  br i1 %t.more, label %t.put, label %t.done
t.put:
  %t.p = getelementptr ptr, ptr %outs, i64 %t.i
  %t.x = load ptr, ptr %t.p, align 8
  %t.rc = call i32 @PyTuple_SetItem(ptr %t, i64 %t.i, ptr %t.x)
  %t.i1 = add i64 %t.i, 1
  br label %t.loop
t.done:
  %made = icmp eq i64 %form, 4
  br i1 %made, label %make, label %t.ret
t.ret:
  ret ptr %t
make:
  %argv = alloca ptr
  store ptr %t, ptr %argv, align 8
  %m = call ptr @PyObject_Vectorcall(ptr %with, ptr %argv, i64 1, ptr null)
  call void @Py_DecRef(ptr %t)
  ret ptr %m

list:
  %l = call ptr @PyList_New(i64 %n)
  %l.no = icmp eq ptr %l, null
  br i1 %l.no, label %fail, label %l.loop
l.loop:
  %l.i = phi i64 [ 0, %list ], [ %l.i1, %l.put ]
  %l.more = icmp slt i64 %l.i, %n
  br i1 %l.more, label %l.put, label %l.ret
l.put:
  %l.p = getelementptr ptr, ptr %outs, i64 %l.i
  %l.x = load ptr, ptr %l.p, align 8
  %l.rc = call i32 @PyList_SetItem(ptr %l, i64 %l.i, ptr %l.x)
  %l.i1 = add i64 %l.i, 1
  br label %l.loop
l.ret:
  ret ptr %l

dict:
  %d = call ptr @PyDict_New()
  %d.no = icmp eq ptr %d, null
  br i1 %d.no, label %fail, label %d.loop
d.loop:
  %d.i = phi i64 [ 0, %dict ], [ %d.i1, %d.next ]
  %d.more = icmp slt i64 %d.i, %n
  br i1 %d.more, label %d.put, label %d.ret
d.put:
  %d.k = call ptr @PyTuple_GetItem(ptr %with, i64 %d.i)
  %d.p = getelementptr ptr, ptr %outs, i64 %d.i
  %d.x = load ptr, ptr %d.p, align 8
  %d.rc = call i32 @PyDict_SetItem(ptr %d, ptr %d.k, ptr %d.x)
  %d.bad = icmp ne i32 %d.rc, 0
  br i1 %d.bad, label %d.drop, label %d.next
d.drop:
  call void @Py_DecRef(ptr %d)
  br label %fail
d.next:
  %d.i1 = add i64 %d.i, 1
  br label %d.loop
d.ret:
  call void @release(ptr %outs, i64 %n)
  ret ptr %d
}
"""

# The launch of entry %e: %bufs has its leaves, %w stands after its arguments.
LAUNCH = """
define internal ptr @launch(ptr %cx, ptr %e, ptr %w, ptr %bufs) {
entry:
  %leaves = call i64 @number(ptr %e, i64 0)
  %fn = call ptr @word(ptr %e, i64 16)
  %fixed = call i64 @number(ptr %e, i64 24)
  %n = call i64 @number(ptr %e, i64 32)
  %consts = call i64 @number(ptr %e, i64 40)
  %arena = call i64 @number(ptr %e, i64 48)
  %free = call i64 @number(ptr %e, i64 56)
  %wrap = call i64 @number(ptr %e, i64 64)
  %form = call i64 @number(ptr %e, i64 72)
  %with = call ptr @word(ptr %e, i64 80)
  %outs = alloca [$LEAVES$ x ptr], align 16
  %specs = alloca [$LEAVES$ x ptr], align 16
  %at.fixed = getelementptr ptr, ptr %bufs, i64 %leaves
  %n.fixed = mul i64 %fixed, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %at.fixed, ptr %w, i64 %n.fixed, i1 false)
  %w1 = getelementptr ptr, ptr %w, i64 %fixed
  %at.out = getelementptr ptr, ptr %at.fixed, i64 %fixed
  %at.const = getelementptr ptr, ptr %at.out, i64 %n
  %n.const = mul i64 %consts, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %at.const, ptr %w1, i64 %n.const, i1 false)
  %w2 = getelementptr ptr, ptr %w1, i64 %consts
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %put ]
  %spec = phi ptr [ %w2, %entry ], [ %spec1, %put ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %make, label %ready
make:
  %s = call ptr @fresh(ptr %cx, ptr %spec)
  %s.no = icmp eq ptr %s, null
  br i1 %s.no, label %fail, label %put
put:
  %out.p = getelementptr ptr, ptr %outs, i64 %i
  store ptr %s, ptr %out.p, align 8
  %spec.p = getelementptr ptr, ptr %specs, i64 %i
  store ptr %spec, ptr %spec.p, align 8
  %array = call ptr @word(ptr %s, i64 $ARRAY$)
  %data = call ptr @word(ptr %array, i64 16)
  %buf.p = getelementptr ptr, ptr %at.out, i64 %i
  store ptr %data, ptr %buf.p, align 8
  %nd = call i64 @number(ptr %spec, i64 16)
  %tail = add i64 %nd, 4
  %spec1 = getelementptr i64, ptr %spec, i64 %tail
  %i1 = add i64 %i, 1
  br label %loop
fail:
  call void @release(ptr %outs, i64 %i)
  ret ptr null
ready:
  %temps = alloca i8, i64 %arena, align 64
  %slow = icmp ne i64 %free, 0
  br i1 %slow, label %unlock, label %run
unlock:
  %thread = call ptr @PyEval_SaveThread()
  call void %fn(ptr %bufs, ptr %temps)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
run:
  call void %fn(ptr %bufs, ptr %temps)
  br label %ran
ran:
  %boxes = icmp ne i64 %wrap, 0
  br i1 %boxes, label %box, label %finish
box:
  %j = phi i64 [ 0, %ran ], [ %j1, %boxed ]
  %left = icmp slt i64 %j, %n
  br i1 %left, label %box.one, label %finish
box.one:
  %j.p = getelementptr ptr, ptr %outs, i64 %j
  %j.s = load ptr, ptr %j.p, align 8
  %j.wp = getelementptr ptr, ptr %specs, i64 %j
  %j.w = load ptr, ptr %j.wp, align 8
  %j.kind = call ptr @word(ptr %j.w, i64 0)
  %none = call ptr @word(ptr %cx, i64 $CX_none$)
  %j.a = call ptr @boxed(ptr %cx, ptr %j.kind, ptr %j.s, ptr %none)
  store ptr %j.a, ptr %j.p, align 8
  %j.no = icmp eq ptr %j.a, null
  br i1 %j.no, label %box.fail, label %boxed
box.fail:
  call void @release(ptr %outs, i64 %n)
  ret ptr null
boxed:
  %j1 = add i64 %j, 1
  br label %box
finish:
  %r = call ptr @result(i64 %form, ptr %with, ptr %outs, i64 %n)
  ret ptr %r
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
