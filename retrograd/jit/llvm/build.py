"""Write LLVM IR as text: typed values, structured loops, one function at a time.

    m = Module(machine)
    f = Fn(m, "scale", [("x", PTR), ("n", I64)])
    with f.loop(0, f.arg("n"), 16) as loop:
        at = f.at(f.arg("x"), loop.i, F32)
        f.store(f.mul(f.load(F32.by(16), at), f.const(F32.by(16), 2.0)), at)
    f.done()

Values carry their type, so one method serves scalars and vectors, floats and integers. No
fast-math flag is ever written: what is fused or reordered was decided before.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from retrograd.jit.llvm.text import I1, I32, I64, LINE, PTR, Int, Module, Type, Val, spell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Fn", "Loop"]

SELDOM = ', !prof !{!"branch_weights", i32 99, i32 1}'


class Loop:
    """A loop being written: its index, what it carries, and what it carries on."""

    def __init__(self, i: Val, carry: list[Val]) -> None:
        self.i = i
        self.carry = carry  # values at the start of the turn
        self.next: list[Val] = list(carry)  # set these before the turn ends
        self.results: list[Val] = []  # after the loop


class Fn:
    """A function being written: call methods in order, then `done`."""

    def __init__(
        self,
        module: Module,
        name: str,
        args: Sequence[tuple[str, Type]],
        result: Type | None = None,
        *,
        attributes: str = "nounwind",
        linkage: str = "internal",
    ) -> None:
        self.module, self.name, self.result = module, name, result
        self.machine = module.machine
        self.parameters = list(args)
        tune = f' "tune-cpu"="{module.machine.tune}"' if module.machine.tune else ""
        self.attributes, self.linkage = attributes + tune, linkage
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.count = 0
        self.block = "entry"

    def arg(self, name: str) -> Val:
        """A parameter."""
        return Val(f"%{name}", dict(self.parameters)[name])

    # -- writing ------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        """A line without result."""
        self.lines.append("  " + line)

    def make(self, t: Type, line: str) -> Val:
        """A line with a result."""
        self.count += 1
        self.lines.append(f"  %v{self.count} = {line}")
        return Val(f"%v{self.count}", t)

    def _label(self, word: str) -> str:
        self.count += 1
        return f"{word}{self.count}"

    def start(self, label: str) -> None:
        """Go on writing in a new block."""
        self.lines.append(f"{label}:")
        self.block = label

    def done(self, value: Val | None = None) -> str:
        """Return, and put the function into its module; its name."""
        self.emit("ret void" if value is None else f"ret {value}")
        args = ", ".join(f"{t.text} %{n}" for n, t in self.parameters)
        kind = self.result.text if self.result else "void"
        head = f"define {self.linkage} {kind} @{self.name}({args}) {self.attributes} {{\nentry:"
        self.module.functions[self.name] = "\n".join([head, *self.allocas, *self.lines, "}"])
        return self.name

    # -- constants ------------------------------------------------------------------------

    def const(self, t: Type, value: Any) -> Val:
        """A number, in every lane."""
        one = spell(t.scalar, value)
        return Val(f"splat ({t.scalar.text} {one})" if t.lanes else one, t)

    def zero(self, t: Type) -> Val:
        """Zeros."""
        return Val("zeroinitializer", t) if t.lanes else self.const(t, 0)

    def vector(self, t: Type, values: Sequence[Any]) -> Val:
        """A constant vector, lane by lane."""
        body = ", ".join(f"{t.scalar.text} {spell(t.scalar, v)}" for v in values)
        return Val(f"<{body}>", t)

    def iota(self, t: Type) -> Val:
        """0, 1, 2, ... in the lanes of an integer vector."""
        return self.vector(t, range(t.lanes)) if t.lanes else self.const(t, 0)

    def integer(self, x: Int, t: Type = I64) -> Val:
        """A Python integer as a value; values pass."""
        return x if isinstance(x, Val) else Val(str(x), t)

    # -- arithmetic: floats and integers, scalars and vectors ----------------------------

    def _two(self, ops: tuple[str, str], a: Val, b: Val) -> Val:
        op = ops[0] if a.type.kind == "f" else ops[1]
        return self.make(a.type, f"{op} {a}, {b.ref}")

    def add(self, a: Val, b: Val) -> Val:
        """a + b."""
        return self._two(("fadd", "add"), a, b)

    def sub(self, a: Val, b: Val) -> Val:
        """a - b."""
        return self._two(("fsub", "sub"), a, b)

    def mul(self, a: Val, b: Val) -> Val:
        """a * b."""
        return self._two(("fmul", "mul"), a, b)

    def div(self, a: Val, b: Val, *, signed: bool = True) -> Val:
        """a / b; of integers, towards zero."""
        return self._two(("fdiv", "sdiv" if signed else "udiv"), a, b)

    def rem(self, a: Val, b: Val, *, signed: bool = True) -> Val:
        """The remainder of integers, with the sign of a."""
        return self._two(("frem", "srem" if signed else "urem"), a, b)

    def neg(self, a: Val) -> Val:
        """-a."""
        if a.type.kind == "f":
            return self.make(a.type, f"fneg {a}")
        return self.sub(self.zero(a.type), a)

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        """a * b + c: rounded once where the machine can, else twice."""
        if not self.machine.fma:
            return self.add(self.mul(a, b), c)
        return self.intrinsic("fma", a, b, c)

    def bitwise(self, op: str, a: Val, b: Val) -> Val:
        """Integers: and, or, xor, shl, lshr, ashr."""
        return self.make(a.type, f"{op} {a}, {b.ref}")

    def compare(self, predicate: str, a: Val, b: Val) -> Val:
        """oeq, olt, une, uno, ... of floats; eq, ne, slt, ult, ... of integers."""
        op = "fcmp" if a.type.kind == "f" else "icmp"
        return self.make(I1.by(a.type.lanes), f"{op} {predicate} {a}, {b.ref}")

    def select(self, mask: Val, a: Val, b: Val) -> Val:
        """a where mask, else b."""
        return self.make(a.type, f"select {mask}, {a}, {b}")

    def intrinsic(self, name: str, *args: Val, result: Type | None = None) -> Val:
        """llvm.<name>.<type of the first argument>(args): fabs, sqrt, roundeven, fshl, ..."""
        t = result or args[0].type
        full = f"llvm.{name}.{args[0].type.suffix}"
        self.module.declare(full, t.text, ", ".join(a.type.text for a in args))
        return self.make(t, f"call {t.text} @{full}({', '.join(map(str, args))})")

    def convert(self, op: str, a: Val, to: Type) -> Val:
        """fptosi, sitofp, uitofp, fpext, fptrunc, trunc, zext, sext, bitcast, ..."""
        to = to.by(a.type.lanes) if op != "bitcast" else to
        return a if a.type == to else self.make(to, f"{op} {a} to {to.text}")

    def bits(self, a: Val) -> Val:
        """The bit pattern of a float."""
        return self.convert("bitcast", a, Type("i", a.type.bits, a.type.lanes))

    def from_bits(self, a: Val) -> Val:
        """The float of a bit pattern."""
        return self.convert("bitcast", a, Type("f", a.type.bits, a.type.lanes))

    # -- vectors --------------------------------------------------------------------------

    def splat(self, a: Val, lanes: int) -> Val:
        """A scalar in every lane."""
        if not lanes or a.type.lanes:
            return a
        t = a.type.by(lanes)
        one = self.make(t, f"insertelement {t.text} poison, {a}, i64 0")
        return self.make(
            t,
            f"shufflevector {one}, {t.text} poison, {I32.by(lanes).text} zeroinitializer",
        )

    def shuffle(self, a: Val, b: Val | None, picks: Sequence[int]) -> Val:
        """Lanes of a and then of b, by number."""
        t = a.type.by(len(picks))
        other = b.ref if b else "poison"
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.make(
            t, f"shufflevector {a}, {a.type.text} {other}, <{len(picks)} x i32> <{mask}>"
        )

    def extract(self, a: Val, lane: Int) -> Val:
        """One lane."""
        return self.make(a.type.scalar, f"extractelement {a}, {self.integer(lane)}")

    def insert(self, a: Val, x: Val, lane: Int) -> Val:
        """The vector with one lane replaced."""
        return self.make(a.type, f"insertelement {a}, {x}, {self.integer(lane)}")

    def fold(self, op: str, a: Val) -> Val:
        """All lanes by add, mul, ...: a fixed tree of halves, the same bits every time."""
        width = a.type.lanes
        while width > 1:
            half = width // 2
            low = self.shuffle(a, None, range(half))
            high = self.shuffle(a, None, range(half, width))
            a, width = self._combine(op, low, high), half
        return self.extract(a, 0)

    def _combine(self, op: str, a: Val, b: Val) -> Val:
        return getattr(self, op)(a, b) if hasattr(self, op) else self.bitwise(op, a, b)

    def maximum(self, a: Val, b: Val) -> Val:
        """The larger; NaN if either is."""
        larger = self.select(self.compare("ogt", a, b), a, b)
        return self.select(self.compare("uno", a, a), a, larger)

    def minimum(self, a: Val, b: Val) -> Val:
        """The smaller; NaN if either is."""
        smaller = self.select(self.compare("olt", a, b), a, b)
        return self.select(self.compare("uno", a, a), a, smaller)

    # -- memory ----------------------------------------------------------------------------

    def at(self, pointer: Val, index: Int, t: Type) -> Val:
        """The address of element `index` of scalars of type t."""
        if isinstance(index, int) and index == 0:
            return pointer
        text = t.scalar.text
        return self.make(PTR, f"getelementptr {text}, {pointer}, {self.integer(index)}")

    def load(self, t: Type, pointer: Val, align: int = 0) -> Val:
        """A scalar or contiguous vector; aligned as its scalar unless said."""
        return self.make(t, f"load {t.text}, {pointer}, align {align or max(t.bits // 8, 1)}")

    def store(self, x: Val, pointer: Val, align: int = 0) -> None:
        """A scalar or contiguous vector."""
        self.emit(f"store {x}, {pointer}, align {align or max(x.type.bits // 8, 1)}")

    def stream(self, x: Val, pointer: Val) -> None:
        """Store past the caches, where pointer is that of a register's place, or of a line."""
        size = min(x.type.bits // 8 * max(x.type.lanes, 1), LINE)
        self.emit(f"store {x}, {pointer}, align {size}, !nontemporal !{{i32 1}}")

    def masked_load(self, t: Type, pointer: Val, mask: Val) -> Val:
        """Lanes where mask; zeros elsewhere, whose memory is not touched."""
        name = f"llvm.masked.load.{t.suffix}.p0"
        self.module.declare(name, t.text, f"ptr, i32, {mask.type.text}, {t.text}")
        given = f"{pointer}, i32 {max(t.bits // 8, 1)}, {mask}, {self.zero(t)}"
        return self.make(t, f"call {t.text} @{name}({given})")

    def masked_store(self, x: Val, pointer: Val, mask: Val) -> None:
        """Only the lanes where mask."""
        name = f"llvm.masked.store.{x.type.suffix}.p0"
        self.module.declare(name, "void", f"{x.type.text}, ptr, i32, {mask.type.text}")
        align = max(x.type.bits // 8, 1)
        self.emit(f"call void @{name}({x}, {pointer}, i32 {align}, {mask})")

    def gather(self, t: Type, pointer: Val, index: Val, mask: Val | None = None) -> Val:
        """t[lane] = pointer[index[lane]] where mask; zeros elsewhere."""
        spots = self.make(PTR.by(t.lanes), f"getelementptr {t.scalar.text}, {pointer}, {index}")
        mask = mask or self.const(I1.by(t.lanes), 1)
        name = f"llvm.masked.gather.{t.suffix}.v{t.lanes}p0"
        self.module.declare(name, t.text, f"{spots.type.text}, i32, {mask.type.text}, {t.text}")
        given = f"{spots}, i32 {max(t.bits // 8, 1)}, {mask}, {self.zero(t)}"
        return self.make(t, f"call {t.text} @{name}({given})")

    def scatter(self, x: Val, pointer: Val, index: Val, mask: Val | None = None) -> None:
        """pointer[index[lane]] = x[lane] where mask, lane after lane."""
        t = x.type
        spots = self.make(PTR.by(t.lanes), f"getelementptr {t.scalar.text}, {pointer}, {index}")
        mask = mask or self.const(I1.by(t.lanes), 1)
        name = f"llvm.masked.scatter.{t.suffix}.v{t.lanes}p0"
        self.module.declare(name, "void", f"{t.text}, {spots.type.text}, i32, {mask.type.text}")
        self.emit(f"call void @{name}({x}, {spots}, i32 {max(t.bits // 8, 1)}, {mask})")

    def alloca(self, t: Type, count: int, align: int = 64) -> Val:
        """Memory of this call, on the stack."""
        self.count += 1
        name = f"%s{self.count}"
        self.allocas.append(f"  {name} = alloca [{count} x {t.text}], align {align}")
        return Val(name, PTR)

    # -- integers that Python may know already ------------------------------------------

    def plus(self, a: Int, b: Int) -> Int:
        """a + b of 64-bit integers, folded where both are known."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0 or a == 0:
            return a if b == 0 else b
        return self.add(self.integer(a), self.integer(b))

    def times(self, a: Int, b: Int) -> Int:
        """a * b of 64-bit integers, folded where both are known."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if b == 1 or a == 1:
            return a if b == 1 else b
        if b == 0 or a == 0:
            return 0
        return self.mul(self.integer(a), self.integer(b))

    def lesser(self, a: Int, b: Int) -> Int:
        """The smaller of 64-bit integers."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        x, y = self.integer(a), self.integer(b)
        return self.select(self.compare("slt", x, y), x, y)

    # -- control -----------------------------------------------------------------------------

    @contextmanager
    def loop(
        self,
        low: Int,
        high: Int,
        step: int = 1,
        carry: Sequence[Val] = (),
        *,
        down: bool = False,
        unless: Callable[[list[Val]], Val] | None = None,
    ) -> Iterator[Loop]:
        """for i in range(low, high, step), or backwards; until unless(what goes round)."""
        head, body, after = (self._label(w) for w in ("head", "body", "after"))
        before = self.block
        i = Val(f"%{head}i", I64)
        held = [Val(f"%{head}c{n}", c.type) for n, c in enumerate(carry)]
        self.emit(f"br label %{head}")
        self.start(head)
        spot = len(self.lines)
        going = self.compare("slt", i, self.integer(high))
        if unless is not None:
            going = self.select(unless(held), self.const(I1, 0), going)
        self.emit(f"br i1 {going.ref}, label %{body}, label %{after}")
        self.start(body)
        loop = Loop(self._mirror(low, high, step, i) if down else i, list(held))
        yield loop
        last = self.block
        on = self.make(I64, f"add nsw {i}, {step}")
        self.emit(f"br label %{head}")
        first = self.integer(low).ref
        phis = [f"  {i.ref} = phi i64 [ {first}, %{before} ], [ {on.ref}, %{last} ]"]
        for was, h, now in zip(carry, held, loop.next, strict=True):
            text = f"phi {h.type.text} [ {was.ref}, %{before} ], [ {now.ref}, %{last} ]"
            phis.append(f"  {h.ref} = {text}")
        self.lines[spot:spot] = phis
        self.start(after)
        loop.results = held

    def _mirror(self, low: Int, high: Int, step: int, i: Val) -> Val:
        if step != 1:
            raise ValueError("a loop runs down by ones")
        return self.sub(self.integer(self.plus(self.plus(high, low), -1)), i)

    @contextmanager
    def when(self, condition: Val, other: Callable[[], object] | None = None) -> Iterator[None]:
        """Only if condition, or else the other, seldom; what comes out is what is stored."""
        then, after = self._label("then"), self._label("after")
        instead, seldom = (self._label("else"), SELDOM) if other else (after, "")
        self.emit(f"br {condition}, label %{then}, label %{instead}{seldom}")
        self.start(then)
        yield
        self.emit(f"br label %{after}")
        if other:
            self.start(instead)
            other()
            self.emit(f"br label %{after}")
        self.start(after)

    def call(self, name: str, result: Type | None, *args: Val) -> Val | None:
        """Another function of the module, or a declared one."""
        given = ", ".join(map(str, args))
        if result is None:
            self.emit(f"call void @{name}({given})")
            return None
        return self.make(result, f"call {result.text} @{name}({given})")
