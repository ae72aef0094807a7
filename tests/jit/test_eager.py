"""Kernels of heavy eager ops: the same results, the same bits each time, loaded when needed."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import retrograd as rg
from retrograd.core import executor
from retrograd.jit import eager_memory, eager_slot
from retrograd.jit.eager import EagerKernels
from retrograd.testing import assert_close

N = 1 << 15  # heavy


@pytest.fixture
def kernels(monkeypatch):
    """An executor of its own, whose programs can be looked at."""
    found = EagerKernels()
    monkeypatch.setattr(executor.slot, "forward", found.forward)
    monkeypatch.setattr(executor.slot, "pull", found.pull)
    return found


def taken(kernels):
    """How many ops and rules run as kernels."""
    return sum(p is not None for p in kernels.programs.values())


def off(f, *args):
    """f by NumPy alone."""
    forward, pull = executor.slot.forward, executor.slot.pull
    eager_slot.unload()
    try:
        return f(*args)
    finally:
        executor.slot.forward, executor.slot.pull = forward, pull


def gradients(f, *arrays):
    leaves = [rg.tensor(a, requires_grad=True) for a in arrays]
    out = f(*leaves)
    rg.sum(out * out).backward()
    return [out.numpy(), *(t.grad.numpy() for t in leaves)]


def bits(arrays):
    return [np.asarray(a).tobytes() for a in arrays]


FUNCTIONS = {
    "tanh": (rg.tanh, [(N,)]),
    "broadcast": (lambda x, y: x * y + y, [(64, 512), (512,)]),
    "softmax": (rg.nn.softmax, [(64, 512)]),
    "layer norm": (rg.nn.layer_norm, [(64, 512), (512,), (512,)]),
    "matmul": (rg.matmul, [(160, 128), (128, 200)]),
    "max pool": (lambda x: rg.nn.max_pool(x, 3, stride=2, padding=1), [(2, 51, 53, 9)]),
    "avg pool": (lambda x: rg.nn.avg_pool(x, 2), [(2, 32, 32, 9)]),
    "gather": (lambda x: rg.take(x, np.arange(0, 200, 3), axis=0), [(256, 128)]),
    "resize": (lambda x: rg.nn.resize(x, (40, 40)), [(2, 20, 20, 33)]),
    "turned": (lambda x: rg.exp(rg.permute_dims(x, (1, 0))) * 2, [(256, 128)]),
    "repeated": (lambda x: rg.sin(rg.broadcast_to(x[:, None], (200, 256))), [(200,)]),
    "sliced": (lambda x: rg.cos(x[:, 3:200:2]), [(512, 256)]),
    "ssim": (lambda x, y: rg.nn.ssim(x, y, window=5), [(2, 80, 70, 3)] * 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_those_of_numpy(name, kernels, rng):
    f, shapes = FUNCTIONS[name]
    arrays = [rng.normal(size=s) for s in shapes]
    wanted = off(gradients, f, *arrays)
    found = gradients(f, *arrays)
    assert taken(kernels), kernels.left
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert_close(a, b)
    light = [a[..., :3] for a in arrays] if name in ("tanh", "softmax") else []
    if light:
        count = len(kernels.programs)
        gradients(f, *light)
        assert len(kernels.programs) == count  # what is light never comes here


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_do_not_depend_on_history_threads_or_checkpoints(name, kernels, rng):
    f, shapes = FUNCTIONS[name]
    arrays = [rng.normal(size=s).astype("f") for s in shapes]
    first = bits(gradients(f, *arrays))
    assert bits(gradients(f, *arrays)) == first
    assert bits(gradients(rg.checkpoint(f), *arrays)) == first
    threads = rg.get_threads()
    try:
        for n in (1, 3):
            rg.set_threads(n)
            assert bits(gradients(f, *arrays)) == first
    finally:
        rg.set_threads(threads)
    kernels.programs.clear()
    assert bits(gradients(f, *arrays)) == first


def test_a_function_that_ran_as_one_can_be_differentiated_again(kernels, rng):
    x, w = rng.normal(size=(64, 512)), rng.normal(size=512)

    def f(x, w):
        return rg.sum(rg.nn.layer_norm(x, w) ** 3)

    def twice(x, w):
        return rg.hvp(f, (x, w), (x * 0 + 1, w))

    wanted = off(twice, *map(rg.asarray, (x, w)))
    for a, b in zip(twice(rg.asarray(x), rg.asarray(w)), wanted, strict=True):
        assert_close(a, b)
    t = rg.tensor(x, requires_grad=True)
    f(t, w).backward(create_graph=True)
    rg.sum(t.grad**2).backward(accumulate=False)
    u = rg.tensor(x, requires_grad=True)

    def plain():
        f(u, w).backward(create_graph=True)
        rg.sum(u.grad**2).backward(accumulate=False)

    off(plain)
    assert_close(t.grad, u.grad)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_resizing_all_axes_is_one_kernel_each_way(mode, kernels, rng):
    x = rg.tensor(rng.normal(size=(2, 20, 20, 33)), requires_grad=True)
    out = rg.nn.resize(x, (40, 30), mode=mode)
    out.backward(rg.asarray(rng.normal(size=out.shape)))
    assert taken(kernels) == len(kernels.programs) == 2


def test_errors_are_those_of_light_ops(kernels):
    def refusal(n):
        with pytest.raises(rg.BoundsError) as raised:
            rg.take_along_axis(rg.ones((n, 4)), rg.asarray(np.full((n, 4), n)), axis=0)
        return str(raised.value).splitlines()[0].replace(str(n), "n")

    assert refusal(3) == refusal(N)
    with pytest.raises(rg.ShapeError, match="add"):
        rg.ones(N) + rg.ones(N + 1)
    with pytest.raises(rg.ShapeError, match="layer_norm: w must have"):
        rg.nn.layer_norm(rg.ones((64, 512)), rg.ones(3))


def test_the_op_that_makes_the_first_nan_is_named(kernels):
    with rg.debug.nans(), pytest.raises(rg.NonFiniteError, match="log"):
        rg.nn.layer_norm(rg.log(-rg.ones((64, 512))))


def test_an_op_of_the_users_is_left_alone(kernels, rng):
    """Its rule may do what only arrays can, or more than compute."""
    seen = []

    @rg.op
    class EagerCube(rg.Op):
        def shape(self, x):
            return x

        def forward(self, x):
            return x**3

        def vjp(self, g, x):
            seen.append(type(x))
            return (
                np.multiply(g, 3 * np.square(x)) if isinstance(x, np.ndarray) else 3 * g * x * x
            )

    x = rng.normal(size=N)
    _, slope = gradients(lambda t: rg.apply(EagerCube(), t), x)
    assert_close(slope, 6 * x**5)
    assert seen


def test_threads_may_run_heavy_ops_at_once(kernels, rng):
    x = rg.asarray(rng.normal(size=N))
    wanted, found = rg.exp(x).numpy(), []
    work = [threading.Thread(target=lambda: found.append(rg.exp(x).numpy())) for _ in range(8)]
    for t in work:
        t.start()
    for t in work:
        t.join()
    assert len(found) == 8
    assert all(np.array_equal(f, wanted) for f in found)


# -- memory -----------------------------------------------------------------------------------


def test_memory_is_used_again_only_when_nobody_holds_it(rng):
    eager_memory.clear()
    a = eager_memory.new((N,), np.dtype(np.float64))
    place, view = a.ctypes.data, a[7:9]
    view[:] = 3
    del a
    b = eager_memory.new((N,), np.dtype(np.float64))
    assert b.ctypes.data != place
    assert view.tolist() == [3, 3]
    del view
    c = eager_memory.new((N,), np.dtype(np.float64))
    assert c.ctypes.data == place
    assert c.flags.writeable
    del b, c
    assert eager_memory.waiting() > 0
    eager_memory.clear()
    assert eager_memory.waiting() == 0


def test_what_waits_has_a_limit(monkeypatch):
    eager_memory.clear()
    monkeypatch.setattr(eager_memory, "LIMIT", 1 << 20)
    held = [eager_memory.new((1 << 19,), np.dtype(np.uint8)) for _ in range(5)]
    del held
    assert eager_memory.waiting() <= 1 << 20
    eager_memory.clear()


# -- loading ----------------------------------------------------------------------------------

SCRIPT = """
import sys
import retrograd as rg
x = rg.tensor([1.0] * 100, requires_grad=True)
rg.sum(rg.tanh(x)).backward()
light = "llvmlite" in sys.modules
y = rg.exp(rg.ones(1 << 16))
print(light, "llvmlite" in sys.modules, float(y[7]))
"""


@pytest.mark.parametrize(("told", "loaded"), [("1", True), ("0", False), ("", True)])
def test_llvm_is_loaded_by_the_first_heavy_op_unless_told_otherwise(told, loaded):
    env = {**os.environ, "RETROGRAD_EAGER_KERNELS": told}
    if not told:
        del env["RETROGRAD_EAGER_KERNELS"]
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
    )
    light, heavy, value = ran.stdout.split()
    assert (light, heavy) == ("False", str(loaded))
    assert_close(np.float32(value), np.exp(np.float32(1)))


def test_another_setting_is_refused(monkeypatch):
    monkeypatch.setenv("RETROGRAD_EAGER_KERNELS", "yes")
    with pytest.raises(rg.ArgumentError, match="must be 0 or 1; got 'yes'"):
        eager_slot.load()
