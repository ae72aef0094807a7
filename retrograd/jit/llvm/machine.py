"""What a CPU offers: vector width, registers, fused multiply-add, masks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from retrograd.core.errors import ArgumentError
from retrograd.jit.cpus import cpus

__all__ = [
    "NARROW",
    "SLOWED",
    "Machine",
    "chosen",
    "here",
    "host",
    "named",
    "running",
    "runs_here",
]


@dataclass(frozen=True)
class Machine:
    """A CPU to emit for. Kernels ask it for widths; nothing else in them knows the CPU."""

    name: str
    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int  # vector registers
    fma: bool
    masks: bool  # cheap masked loads and stores
    cores: int = field(default_factory=cpus)  # how work is shared out, which changes no bits
    tune: str = ""  # the CPU by whose timetable instructions are put in order, if another
    told: bool = True  # whether what is read in order is read faster if it is called for
    frugal: bool = False  # whether it pays for each instruction beside arithmetic
    bursts: bool = False  # whether lines of a row are read faster if called for together
    spreads: bool = False  # whether numbers are spread in registers beside two multiply-adds

    def lanes(self, itemsize: int) -> int:
        """Numbers of `itemsize` bytes in a vector."""
        return max(1, self.vector_bytes // itemsize)


_X86 = "x86_64-unknown-linux-gnu"
_TUNED = "sapphirerapids"
# CPUs that take in four instructions a cycle, and those whose clock falls with what is loaded.
NARROW = ["haswell", "broadwell", "skylake", "skylake-avx512", "cascadelake", "cooperlake"]
SLOWED = ["graniterapids"]
FRUGAL = [*NARROW, *SLOWED]
_KINDS = {
    "avx512": (
        "skylake-avx512",
        "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2,+fma,+f16c",
        64,
        32,
        True,
        True,
    ),
    "avx2": ("haswell", "+avx2,+fma,+f16c", 32, 16, True, False),
    "sse2": ("x86-64", "", 16, 16, False, False),
}


@lru_cache
def named(kind: str) -> Machine:
    """A machine by the name of its vectors: avx512, avx2, sse2 or neon; "host" is this one."""
    if kind == "host":
        return host()
    if kind == "neon":
        return Machine(
            "neon", "aarch64-unknown-linux-gnu", "generic", "+neon", 16, 32, True, False
        )
    if kind not in _KINDS:
        raise ArgumentError(
            f"RETROGRAD_TARGET: got {kind!r}; it is one of host, avx512, avx2, sse2, neon"
        )
    cpu, features, width, registers, fma, masks = _KINDS[kind]
    return Machine(kind, _triple(), cpu, features, width, registers, fma, masks)


def _triple() -> str:
    mine = llvm.get_default_triple()
    return mine if mine.startswith("x86_64") else _X86


@lru_cache
def host() -> Machine:
    """The machine this process runs on."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    triple, cpu, flat = llvm.get_default_triple(), _cpu(features), features.flatten()
    if triple.startswith("x86_64"):
        wide = all(features.get(f) for f in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))
        amd = cpu.startswith("znver")  # mostly they look ahead best by themselves: see ahead.py
        if wide:
            # With LLVM's timetable of AMD's CPUs, loads come so early that registers run out:
            # sums of some convolutions went through memory, a third of their speed.
            tune = _TUNED if amd else ""
            kind = "avx512", triple, cpu, flat, 64, 32, True, True
            zen5 = cpu == "znver5"
            told = zen5 or not amd
            found = Machine(*kind, tune=tune, told=told, frugal=cpu in FRUGAL)
            return replace(found, bursts=True, spreads=True) if zen5 else found
        if features.get("avx2") and features.get("fma"):
            kind = "avx2", triple, cpu, flat, 32, 16, True, False
            return Machine(*kind, told=not amd, frugal=cpu in FRUGAL)
        return Machine("sse2", triple, cpu, flat, 16, 16, bool(features.get("fma")), False)
    return Machine("neon", triple, cpu, flat, 16, 32, True, False)


def _cpu(features: Any) -> str:
    """LLVM's name for this CPU; it goes by the model, which a hypervisor may hide."""
    name = llvm.get_host_cpu_name()
    return "graniterapids" if name == "rocketlake" and features.get("amx-fp16") else name


@lru_cache
def chosen() -> Machine:
    """The machine that programs are compiled for: RETROGRAD_TARGET, or this one."""
    return running(named(os.environ.get("RETROGRAD_TARGET", "host")))


def running(machine: Machine) -> Machine:
    """A machine whose code is to run in this process; others are refused.

    The first instruction that this CPU does not know would end the process.
    """
    if not runs_here(machine):
        raise ArgumentError(
            f"RETROGRAD_TARGET: got {machine.name!r}, code that this CPU does not run; "
            f"it runs that for {', '.join(here())}"
        )
    return machine


def here() -> list[str]:
    """The machines, by name, whose code may run in this process; the widest vectors first."""
    return [name for name in (*_KINDS, "neon") if runs_here(named(name))]


def runs_here(machine: Machine) -> bool:
    """Whether code for `machine` may run in this process."""
    mine = host()
    order = ["sse2", "avx2", "avx512"]
    if mine.name not in order or machine.name not in order:
        return machine.name == mine.name
    return order.index(machine.name) <= order.index(mine.name)
