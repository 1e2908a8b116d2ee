"""What the ops of the direct solvers must give, in NumPy, and the small systems they are tried on."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.op import Sample
from rlx.sparse.direct_apply import direct_solve, substitute
from rlx.sparse.direct_ops import ABOVE, CHOLESKY, ENTRY, FIRST, LU, PANEL, PARENT, SIZE, WIDTH, front_factor

_FACTOR = ("nodes", "into", "source", "place", "batches", "bounds")


@front_factor.ref
def _(values: Any, scale: Any, tiny: Any, nodes: Any, into: Any, source: Any, place: Any, batches: Any, bounds: Any, *,
      kind: str, classes: Any, panels: int, pool: int, stack: int) -> Any:
    lead = values.shape[:-1]
    out, info = np.zeros((*lead, panels), values.dtype), np.zeros((*lead, 2), np.int32)
    entries = (values * scale)[..., source]
    for at in np.ndindex(*lead):
        limit = np.broadcast_to(tiny, lead)[at]
        out[at], info[at] = _one(entries[at], limit, nodes, into, place, panels, kind)
    return out, info


def _one(entries: Any, tiny: Any, nodes: Any, into: Any, place: Any, panels: int, kind: str) -> tuple[Any, Any]:
    """Front after front, each a dense matrix."""
    count = len(nodes) - 1
    fronts = [np.zeros((n[SIZE], n[SIZE]), entries.dtype) for n in nodes[:count]]
    out, bad = np.zeros(panels, entries.dtype), []
    for s, (f, node) in enumerate(zip(fronts, nodes[:count], strict=True)):
        begin, stop = node[ENTRY], nodes[s + 1, ENTRY]
        f.flat[place[begin:stop]] += entries[begin:stop]
        w, size, panel = node[WIDTH], node[SIZE], node[PANEL]
        for k in range(w):
            if kind == LU:
                if not abs(f[k, k]) >= tiny:
                    bad.append(node[FIRST] + k + 1)
                if abs(f[k, k]) < tiny:
                    f[k, k] = tiny * (f[k, k] / abs(f[k, k]) if f[k, k] else 1)
                f[k + 1:, k] /= f[k, k]
                f[k + 1:, k + 1:] -= np.outer(f[k + 1:, k], f[k, k + 1:])
            else:
                with np.errstate(invalid="ignore", divide="ignore"):
                    if not f[k, k].real > 0:
                        bad.append(node[FIRST] + k + 1)
                    f[k, k] = np.sqrt(f[k, k].real)
                    f[k, k + 1:] /= f[k, k]
                    f[k + 1:, k + 1:] -= np.triu(np.outer(f[k, k + 1:].conj(), f[k, k + 1:]))
        out[panel:panel + w * size] = f[:w].ravel()
        if kind == LU:
            out[panel + w * size:panel + w * (2 * size - w)] = f[w:, :w].T.ravel()
        if node[PARENT] >= 0:
            rows = into[node[ABOVE]:node[ABOVE] + size - w]
            fronts[node[PARENT]][np.ix_(rows, rows)] += f[w:, w:]
    return out, (len(bad), min(bad, default=0))


@substitute.ref
def _(panels: Any, b: Any, nodes: Any, members: Any, batches: Any, bounds: Any, *, kind: str, trans: bool, classes: Any,
      longest: int) -> Any:
    out = np.empty(b.shape, b.dtype)
    for at in np.ndindex(*b.shape[:-2]):
        l, u = triangles(panels[at], nodes, members, kind)
        matrix = l @ u
        out[at] = np.linalg.solve(matrix.T if trans else matrix, b[at].T).T
    return out


def triangles(panels: Any, nodes: Any, members: Any, kind: str) -> tuple[Any, Any]:
    """Dense L and U of the panels of one matrix."""
    n = int(nodes[-1, FIRST])
    l, u = np.eye(n, dtype=panels.dtype), np.zeros((n, n), panels.dtype)
    for first, w, size, above, _, panel in nodes[:-1, :PANEL + 1]:
        rows = np.concatenate([np.arange(first, first + w), members[above:above + size - w]]).astype(int)
        block = panels[panel:panel + w * size].reshape(w, size)
        for k in range(w):
            u[first + k, rows[k:]] = block[k, k:]
            l[first + k, rows[:k]] = block[k, :k]
        if kind == LU:
            low = panels[panel + w * size:panel + w * (2 * size - w)].reshape(w, size - w)
            l[np.ix_(rows[w:], rows[:w])] = low.T
    return (l, u) if kind == LU else (u.conj().T, u)


@direct_solve.ref
def _(values: Any, panels: Any, b: Any, indices: Any, indptr: Any, *rest: Any, trans: int, **attrs: Any) -> Any:
    import scipy.sparse
    n, lead = b.shape[-1], b.shape[:-2]
    x = np.empty(b.shape, b.dtype)
    for at in np.ndindex(*lead):
        m = scipy.sparse.csr_matrix((values[at], indices, indptr), shape=(n, n)).toarray()
        x[at] = np.linalg.solve((m, m.T, m.conj().T)[trans], b[at].T).T
    return x, np.zeros(b.shape[:-1], values.real.dtype), np.zeros(lead, np.int32)


def _judged(results: Any, values: Any, *rest: Any, **attrs: Any) -> list[Any]:
    """The solution; of the backward error only whether it is small, and of the steps nothing."""
    x, error, steps = (np.asarray(r) for r in results)
    return [x, np.where(error <= 64 * np.finfo(error.dtype).eps, 0, error), np.zeros_like(steps)]


direct_solve.rules["canonical"] = _judged


def system(n: int, kind: str, dtype: str, seed: int = 0) -> Any:
    """A sparse matrix of moderate condition; Hermitian positive definite for Cholesky."""
    import scipy.sparse
    rng = np.random.default_rng(seed)
    a = scipy.sparse.random(n, n, 2.5 / n, "csr", random_state=rng, data_rvs=rng.standard_normal)
    if "complex" in dtype:
        a = a + 1j * scipy.sparse.random(n, n, 1.5 / n, "csr", random_state=rng, data_rvs=rng.standard_normal)
    if kind == CHOLESKY:
        made = (a @ a.conj().T + 2 * scipy.sparse.eye(n)).tocsr().astype(dtype)
    else:
        made = (a + scipy.sparse.diags(rng.choice([-3.0, 3.0], n))).tocsr().astype(dtype)
    made.sort_indices()
    return made


def _case(n: int, kind: str, dtype: str, order: str = "amd") -> tuple[Any, Any, Any]:
    """(matrix, plan, panels) of a small system."""
    from rlx.sparse.direct_plan import analyze
    a = system(n, kind, dtype)
    plan = analyze(a, kind=kind, ordering=order)
    t = plan._tables
    scale = t["scale"].astype(a.real.dtype)
    panels, _ = _one((a.data * scale)[t["source"]], scale.dtype.type(0), t["nodes"], t["into"], t["place"],
                     plan.attrs["panels"], kind)
    return a, plan, panels


@front_factor.samples
def _() -> list[Sample]:
    out = []
    for n, kind, dtype, batch in ((12, LU, "float64", ()), (12, CHOLESKY, "complex128", ()), (9, LU, "float32", (2,)),
                                  (14, CHOLESKY, "float64", ())):
        a, plan, _ = _case(n, kind, dtype)
        t = plan._tables
        real = a.real.dtype
        values = a.data if not batch else np.stack([a.data, -2 * a.data])
        args = (values, t["scale"].astype(real), np.array(1e-6, real), *[t[k] for k in _FACTOR])
        out.append(Sample(args, plan.attrs, name=f"{kind}-{dtype}", tolerance=100.0, grad=False))
    a, plan, _ = _case(6, LU, "float64")
    t = plan._tables
    args = (a.data, t["scale"], np.array(100.0), *[t[k] for k in _FACTOR])
    return [*out, Sample(args, plan.attrs, name="replaced", tolerance=100.0, edge=True, grad=False)]


@substitute.samples
def _() -> list[Sample]:
    out = []
    for n, kind, dtype, trans in ((12, LU, "float64", False), (12, LU, "float64", True),
                                  (11, CHOLESKY, "complex128", False), (10, LU, "float32", False)):
        _, plan, panels = _case(n, kind, dtype)
        t = plan._tables
        b = np.random.default_rng(1).standard_normal((2, n)).astype(dtype)
        attrs = {"kind": kind, "trans": trans, "classes": plan.attrs["classes"], "longest": plan.longest}
        args = (panels, b, *[t[k] for k in ("nodes", "members", "batches", "bounds")])
        out.append(Sample(args, attrs, name=f"{kind}-{dtype}-{int(trans)}", tolerance=100.0, grad=False))
    return out


@direct_solve.samples
def _() -> list[Sample]:
    out = []
    for n, kind, dtype, trans in ((10, LU, "float64", 0), (8, CHOLESKY, "float64", 0), (8, LU, "complex128", 2)):
        a, plan, panels = _case(n, kind, dtype)
        t = plan._tables
        b = np.random.default_rng(1).standard_normal((2, n)).astype(dtype)
        attrs = {"kind": kind, "trans": trans, "refine": 2, "classes": plan.attrs["classes"], "longest": plan.longest}
        args = (a.data, panels, b, a.indices.astype(np.int32), a.indptr.astype(np.int32), t["orders"],
                t["scales"].astype(a.real.dtype), *[t[k] for k in ("nodes", "members", "batches", "bounds")])
        out.append(Sample(args, attrs, name=f"{kind}-{dtype}-{trans}", tolerance=200.0, grad=False))
    return out
