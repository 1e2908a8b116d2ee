"""CUDA graphs: what is launched on a stream between begin and end is recorded; loops and branches become nodes.

A conditional node runs its body while (or if) a value on the device says so, which a kernel sets: no host is
asked. ``while`` is: test, set, node(body, test, set). Bodies are recorded on streams of their own, one a level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rlx.device.cuda import driver


class Recorder:
    """Records into one graph; ``stream`` is where launches go now."""

    def __init__(self, context: Any, streams: list[Any]) -> None:
        self._context = context
        self._streams = streams
        self._depth = 0

    @property
    def stream(self) -> Any:
        """The stream that records."""
        return self._streams[self._depth]

    def record(self, work: Callable[[], None]) -> Any:
        """The executable graph of what ``work`` launches."""
        d = driver.api()
        relaxed = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        _told(d.cuStreamBeginCapture(self.stream, relaxed))
        try:
            work()
        except BaseException:
            d.cuStreamEndCapture(self.stream)
            raise
        graph = _told(d.cuStreamEndCapture(self.stream))
        try:
            return _told(d.cuGraphInstantiate(graph, 0))
        finally:
            d.cuGraphDestroy(graph)

    def handle(self) -> Any:
        """A value that a kernel sets and a conditional node of the current graph reads."""
        d = driver.api()
        _, graph, *_ = self._info()
        return _told(d.cuGraphConditionalHandleCreate(graph, self._context, 0, 0))

    def repeat(self, handle: Any, body: Callable[[], None]) -> None:
        """``while handle: body``."""
        kinds = driver.api().CUgraphConditionalNodeType
        self._node(handle, kinds.CU_GRAPH_COND_TYPE_WHILE, (body,))

    def choose(self, handle: Any, then: Callable[[], None], orelse: Callable[[], None]) -> None:
        """``if handle: then else: orelse``."""
        kinds = driver.api().CUgraphConditionalNodeType
        self._node(handle, kinds.CU_GRAPH_COND_TYPE_IF, (then, orelse))

    def _node(self, handle: Any, kind: Any, bodies: tuple[Callable[[], None], ...]) -> None:
        d = driver.api()
        params = d.CUgraphNodeParams()
        params.type = d.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        params.conditional.handle = handle
        params.conditional.type = kind
        params.conditional.size = len(bodies)
        params.conditional.ctx = self._context
        _, graph, *edges, count = self._info()
        node = _told(d.cuGraphAddNode(graph, *edges, count, params))
        after = d.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
        rest = [None] * (len(edges) - 1)
        _told(d.cuStreamUpdateCaptureDependencies(self.stream, [node], *rest, 1, after))
        for graph, body in zip(params.conditional.phGraph_out, bodies, strict=True):
            with self._inside(graph):
                body()

    @contextmanager
    def _inside(self, graph: Any) -> Iterator[None]:
        d = driver.api()
        relaxed = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._depth += 1
        if self._depth == len(self._streams):
            self._streams.append(_told(d.cuStreamCreate(d.CUstream_flags.CU_STREAM_NON_BLOCKING)))
        _told(d.cuStreamBeginCaptureToGraph(self.stream, graph, None, None, 0, relaxed))
        try:
            yield
        finally:
            ended = d.cuStreamEndCapture(self.stream)
            self._depth -= 1
        _told(ended)

    def _info(self) -> tuple[Any, ...]:
        """(status, graph, dependencies, .., their number) of the stream that records."""
        status, _, *rest = _told(driver.api().cuStreamGetCaptureInfo(self.stream))
        return status, *rest


def _told(result: tuple[Any, ...]) -> Any:
    return driver.told("record a program as a graph", result)
