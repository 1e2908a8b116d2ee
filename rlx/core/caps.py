"""What a device can do, as data. Schedulers, rules and renderers ask this record, never a name."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx.core.dtype import DType, float64


@dataclass(frozen=True, slots=True)
class Caps:
    """Capabilities read from a device's driver when it is opened.

    ``dtypes`` are the types it computes in; ``storage`` those it can only load and store. ``spells`` maps a
    primitive to the dtypes for which the device's own language computes it accurately; an elementwise primitive it
    does not spell is expanded (``rlx.ir.expand``) or refused. ``schedule`` is ``nest`` (cores with vector units run
    loop nests), ``grid`` (workgroups of lanes) or ``graph`` (the device takes MIR whole). ``rewrites`` names, for a
    dtype in ``dtypes`` that the hardware lacks, the rule by which it is computed with the same meaning.
    ``max_buffers`` is how many buffers one kernel can bind (0: any number).
    """

    name: str
    dtypes: frozenset[DType]
    schedule: str = "nest"
    default_float: DType = float64
    index_bits: int = 64
    storage: frozenset[DType] = frozenset()
    spells: dict[str, frozenset[DType]] = field(default_factory=dict, hash=False, compare=False)
    vector_bytes: int = 32
    cores: int = 1
    max_workgroup: int = 256
    shared_bytes: int = 0
    subgroup: int = 0
    max_binding_bytes: int = 0
    max_buffers: int = 0
    features: frozenset[str] = frozenset()
    rewrites: dict[DType, str] = field(default_factory=dict, hash=False, compare=False)
    control: bool = True

    def computes(self, dtype: DType) -> bool:
        """Whether arithmetic in this type is native."""
        return dtype in self.dtypes

    def stores(self, dtype: DType) -> bool:
        """Whether a buffer of this type can live on the device."""
        return dtype in self.dtypes or dtype in self.storage
