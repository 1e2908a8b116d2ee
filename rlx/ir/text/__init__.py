"""The IR as text, at every level, and back: what is printed parses to an equal object, and prints the same again.

Graphs (HIR and MIR; the same form)::

    text    := [dims] graph
    dims    := "dims" symbol(low, high), ...               the symbols of the sizes, with inclusive bounds
    graph   := "graph" name(%i, ...) { node* return %i, ... }
    node    := %i, ... = op(%i, ...) {attr = value, ...} : type, ... [@ "device"] [level n] [# file:line via op] graph*
    type    := dtype[size, ...]                            f64[3, 2*n + 1]; bool i8..i64 u8..u64 f16 bf16 .. c128
    size    := product + ...    product := int * atom * ...    atom := symbol | floordiv|mod|max|min(size, size)
    value   := true | false | none | int | float | complex(re, im) | "string" | dtype | [size] | (value, ...)

``[size]`` is a symbolic size. Floats are the shortest decimals that read back equal; the bits of a NaN are not kept.
The comment of a node is the user's line that made it; nodes made of constants alone have none, because one object
serves every graph. ``level`` is written where it is not the depth of the graph (inputs) or that of the arguments.
Storage (of ``buffer`` nodes) and payloads (of ``native`` nodes) are left out.

Programs and kernels (LIR)::

    text    := kernel* program
    kernel  := "kernel" name(param, ...) { stmt* }  [# notes]
    param   := name: dtype[size] access                    access: r w rw
    stmt    := for name in range(expr, expr [, step]) kind { stmt* }
             | let name = expr          | var name = expr          a value; a register
             | set name = expr          | combine name = expr      assign a register; combine may be reordered
             | array name: dtype[size] space
             | contract acc m by n = a[expr] stride row column times b[expr] depth k
             | store name[expr] = expr  | atomic kind name[expr] = expr
             | if expr { stmt* } [else { stmt* }]
             | while expr { stmt* }     | barrier
    expr    := const | name | name[expr] | prim(expr, ...) | cast<dtype>(expr) | expr sign expr | (expr)
    const   := 3 (i64) | 0.5 (f64) | true | dtype(number) | dtype(re, im)
    sign    := == != < <= > >=   |   ^   &   << >>   + -   * / // %       loosest first, as in Python
    program := "program" name arena bytes { buffer* step* }
    buffer  := buffer name: dtype[size] role [slot n] [offset bytes]
    step    := launch kernel(name, ...)  | copy name = name
             | native "claim" (name: type, ...) to (name: type, ...) [scratch (name, ...)] [{attr = value, ...}]
             | while { step* } holds name { step* }
             | if name { step* } [else { step* }]
             | repeat count counter name { step* }

``typed<dtype>(expr)`` gives an expression another dtype than its parts say: only IR that breaks its grammar has it.
Reading fails with FormatError, which names the line, the column, and what was expected.
"""

from __future__ import annotations

from rlx.ir.text.graph import parse_graph, print_graph
from rlx.ir.text.loop_parse import parse_kernel, parse_program
from rlx.ir.text.loop_print import print_kernel, print_program

__all__ = ["parse_graph", "parse_kernel", "parse_program", "print_graph", "print_kernel", "print_program"]
