"""The part of :mod:`rlx.device.cpu.calls` that compares one argument, and all below it, with what an entry wants."""

# One argument against the words at the cursor. %st: cursor, next buffer, next scratch, context,
# room for an overflow flag, next owner: what must live while its memory is in use is held from here on.
MATCH = """
define internal i1 @match(ptr %st, ptr %x) {
entry:
  %w = call ptr @word(ptr %st, i64 0)
  %cx = call ptr @word(ptr %st, i64 24)
  %tag = call i64 @number(ptr %w, i64 0)
  %want = call ptr @word(ptr %w, i64 8)
  %w16 = getelementptr i8, ptr %w, i64 16
  store ptr %w16, ptr %st, align 8
  switch i64 %tag, label %no [ i64 0, label %array  i64 1, label %ndarray  i64 2, label %float  i64 3, label %int
    i64 4, label %bool  i64 5, label %store  i64 6, label %intf  i64 7, label %single  i64 8, label %same
    i64 9, label %tuple  i64 10, label %list  i64 11, label %dict ]
no:
  ret i1 false
yes:
  ret i1 true

array:
  %a.t = call ptr @word(ptr %cx, i64 $CX_array$)
  %a.is = call i1 @is_a(ptr %x, ptr %a.t)
  br i1 %a.is, label %a.1, label %no
a.1:
  %a.cell = call ptr @word(ptr %x, i64 $CELL$)
  %a.null = icmp eq ptr %a.cell, null
  br i1 %a.null, label %no, label %a.2
a.2:
  %a.ct = call ptr @word(ptr %cx, i64 $CX_cell$)
  %a.light = call i1 @is_a(ptr %a.cell, ptr %a.ct)
  br i1 %a.light, label %a.3, label %no
a.3:
  %a.kind = call ptr @word(ptr %a.cell, i64 $KIND$)
  %a.same = icmp eq ptr %a.kind, %want
  br i1 %a.same, label %a.4, label %no
a.4:
  %a.s = call ptr @word(ptr %a.cell, i64 $STORAGE$)
  %a.none = icmp eq ptr %a.s, null
  br i1 %a.none, label %no, label %stored
store:
  br label %stored
stored:
  %s = phi ptr [ %a.s, %a.4 ], [ %x, %store ]
  %s.t = call ptr @word(ptr %cx, i64 $CX_storage$)
  %s.is = call i1 @is_a(ptr %s, ptr %s.t)
  br i1 %s.is, label %s.1, label %no
s.1:
  %s.array = call ptr @word(ptr %s, i64 $ARRAY$)
  %s.null = icmp eq ptr %s.array, null
  br i1 %s.null, label %no, label %s.2
s.2:
  %s.data = call ptr @word(ptr %s.array, i64 16)
  br label %found

ndarray:
  %n.t = call ptr @word(ptr %cx, i64 $CX_ndarray$)
  %n.is = call i1 @is_a(ptr %x, ptr %n.t)
  br i1 %n.is, label %n.1, label %no
n.1:
  %n.descr = call ptr @word(ptr %x, i64 56)
  %n.same = icmp eq ptr %n.descr, %want
  br i1 %n.same, label %n.2, label %no
n.2:
  %n.nd.w = call i64 @number(ptr %w, i64 16)
  %n.ndp = getelementptr i8, ptr %x, i64 24
  %n.nd32 = load i32, ptr %n.ndp, align 4
  %n.nd = sext i32 %n.nd32 to i64
  %n.rank = icmp eq i64 %n.nd, %n.nd.w
  br i1 %n.rank, label %n.3, label %no
n.3:
  %n.fp = getelementptr i8, ptr %x, i64 64
  %n.f = load i32, ptr %n.fp, align 4
  %n.m = and i32 %n.f, 257
  %n.plain = icmp eq i32 %n.m, 257
  br i1 %n.plain, label %n.4, label %no
n.4:
  %n.dims = call ptr @word(ptr %x, i64 32)
  %n.sizes = getelementptr i8, ptr %w, i64 24
  br label %n.loop
n.loop:
  %n.i = phi i64 [ 0, %n.4 ], [ %n.i1, %n.next ]
  %n.more = icmp slt i64 %n.i, %n.nd
  br i1 %n.more, label %n.size, label %n.done
n.size:
  %n.dp = getelementptr i64, ptr %n.dims, i64 %n.i
  %n.d = load i64, ptr %n.dp, align 8
  %n.wp = getelementptr i64, ptr %n.sizes, i64 %n.i
  %n.wd = load i64, ptr %n.wp, align 8
  %n.eq = icmp eq i64 %n.d, %n.wd
  br i1 %n.eq, label %n.next, label %no
n.next:
  %n.i1 = add i64 %n.i, 1
  br label %n.loop
n.done:
  %n.end = getelementptr i64, ptr %n.sizes, i64 %n.nd
  store ptr %n.end, ptr %st, align 8
  %n.data = call ptr @word(ptr %x, i64 16)
  br label %found

float:
  %f.t = call ptr @word(ptr %cx, i64 $CX_float$)
  %f.is = call i1 @is_a(ptr %x, ptr %f.t)
  br i1 %f.is, label %f.1, label %no
f.1:
  %f.v = call double @PyFloat_AsDouble(ptr %x)
  br label %f64
intf:
  %if.t = call ptr @word(ptr %cx, i64 $CX_int$)
  %if.is = call i1 @is_a(ptr %x, ptr %if.t)
  br i1 %if.is, label %if.1, label %no
if.1:
  %if.v = call double @PyLong_AsDouble(ptr %x)
  %if.bad = fcmp oeq double %if.v, -1.0
  br i1 %if.bad, label %if.clear, label %f64
if.clear:
  call void @PyErr_Clear()
  br label %no
f64:
  %v64 = phi double [ %f.v, %f.1 ], [ %if.v, %if.1 ]
  %p64 = call ptr @word(ptr %st, i64 16)
  store double %v64, ptr %p64, align 8
  br label %scratch
single:
  %g.t = call ptr @word(ptr %cx, i64 $CX_float$)
  %g.is = call i1 @is_a(ptr %x, ptr %g.t)
  br i1 %g.is, label %g.1, label %no
g.1:
  %g.v = call double @PyFloat_AsDouble(ptr %x)
  %g.s = fptrunc double %g.v to float
  %g.p = call ptr @word(ptr %st, i64 16)
  store float %g.s, ptr %g.p, align 8
  br label %scratch
int:
  %i.t = call ptr @word(ptr %cx, i64 $CX_int$)
  %i.is = call i1 @is_a(ptr %x, ptr %i.t)
  br i1 %i.is, label %i.1, label %no
i.1:
  %i.p = call ptr @word(ptr %st, i64 16)
  %i.o = getelementptr i8, ptr %st, i64 32
  store i32 0, ptr %i.o, align 4
  %i.v = call i64 @PyLong_AsLongLongAndOverflow(ptr %x, ptr %i.o)
  %i.over = load i32, ptr %i.o, align 4
  %i.fits = icmp eq i32 %i.over, 0
  store i64 %i.v, ptr %i.p, align 8
  br i1 %i.fits, label %scratch, label %no
bool:
  %b.t = call ptr @word(ptr %cx, i64 $CX_bool$)
  %b.is = call i1 @is_a(ptr %x, ptr %b.t)
  br i1 %b.is, label %b.1, label %no
b.1:
  %b.f = call ptr @word(ptr %cx, i64 $CX_false$)
  %b.v = icmp ne ptr %x, %b.f
  %b.8 = zext i1 %b.v to i8
  %b.p = call ptr @word(ptr %st, i64 16)
  store i8 %b.8, ptr %b.p, align 8
  br label %scratch
scratch:
  %sc = call ptr @word(ptr %st, i64 16)
  %sc1 = getelementptr i8, ptr %sc, i64 8
  call void @put(ptr %st, i64 16, ptr %sc1)
  br label %found
found:
  %data = phi ptr [ %s.data, %s.2 ], [ %n.data, %n.done ], [ %sc, %scratch ]
  %owner = phi ptr [ %s, %s.2 ], [ %x, %n.done ], [ null, %scratch ]
  %own.p = call ptr @word(ptr %st, i64 40)
  call void @Py_IncRef(ptr %owner)
  store ptr %owner, ptr %own.p, align 8
  %own.p1 = getelementptr i8, ptr %own.p, i64 8
  call void @put(ptr %st, i64 40, ptr %own.p1)
  %slot = call ptr @word(ptr %st, i64 8)
  store ptr %data, ptr %slot, align 8
  %slot1 = getelementptr i8, ptr %slot, i64 8
  call void @put(ptr %st, i64 8, ptr %slot1)
  br label %yes

same:
  %same.is = icmp eq ptr %x, %want
  br i1 %same.is, label %yes, label %no

tuple:
  %t.t = call ptr @word(ptr %cx, i64 $CX_tuple$)
  %t.is = call i1 @is_a(ptr %x, ptr %t.t)
  br i1 %t.is, label %t.1, label %no
t.1:
  %t.n = call i64 @PyTuple_Size(ptr %x)
  br label %row
list:
  %l.t = call ptr @word(ptr %cx, i64 $CX_list$)
  %l.is = call i1 @is_a(ptr %x, ptr %l.t)
  br i1 %l.is, label %l.1, label %no
l.1:
  %l.n = call i64 @PyList_Size(ptr %x)
  br label %row
row:
  %r.n = phi i64 [ %t.n, %t.1 ], [ %l.n, %l.1 ]
  %r.want = ptrtoint ptr %want to i64
  %r.same = icmp eq i64 %r.n, %r.want
  br i1 %r.same, label %r.loop, label %no
r.loop:
  %r.i = phi i64 [ 0, %row ], [ %r.i1, %r.next ]
  %r.more = icmp slt i64 %r.i, %r.n
  br i1 %r.more, label %r.item, label %yes
r.item:
  %r.tuple = icmp eq i64 %tag, 9
  br i1 %r.tuple, label %r.t, label %r.l
r.t:
  %r.tx = call ptr @PyTuple_GetItem(ptr %x, i64 %r.i)
  br label %r.child
r.l:
  %r.lx = call ptr @PyList_GetItem(ptr %x, i64 %r.i)
  br label %r.child
r.child:
  %r.x = phi ptr [ %r.tx, %r.t ], [ %r.lx, %r.l ]
  %r.ok = call i1 @match(ptr %st, ptr %r.x)
  br i1 %r.ok, label %r.next, label %no
r.next:
  %r.i1 = add i64 %r.i, 1
  br label %r.loop

dict:
  %d.t = call ptr @word(ptr %cx, i64 $CX_dict$)
  %d.is = call i1 @is_a(ptr %x, ptr %d.t)
  br i1 %d.is, label %d.1, label %no
d.1:
  %d.n = call i64 @PyDict_Size(ptr %x)
  %d.want = ptrtoint ptr %want to i64
  %d.same = icmp eq i64 %d.n, %d.want
  br i1 %d.same, label %d.2, label %no
d.2:
  %d.keys = getelementptr i8, ptr %w, i64 16
  %d.end = getelementptr i64, ptr %d.keys, i64 %d.n
  store ptr %d.end, ptr %st, align 8
  br label %d.loop
d.loop:
  %d.i = phi i64 [ 0, %d.2 ], [ %d.i1, %d.next ]
  %d.more = icmp slt i64 %d.i, %d.n
  br i1 %d.more, label %d.item, label %yes
d.item:
  %d.kp = getelementptr ptr, ptr %d.keys, i64 %d.i
  %d.key = load ptr, ptr %d.kp, align 8
  %d.x = call ptr @PyDict_GetItemWithError(ptr %x, ptr %d.key)
  %d.none = icmp eq ptr %d.x, null
  br i1 %d.none, label %d.miss, label %d.child
d.miss:
  call void @PyErr_Clear()
  br label %no
d.child:
  %d.ok = call i1 @match(ptr %st, ptr %d.x)
  br i1 %d.ok, label %d.next, label %no
d.next:
  %d.i1 = add i64 %d.i, 1
  br label %d.loop
}
"""
