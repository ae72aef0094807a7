"""Memory that is handed over: DLPack with torch and jax, in both directions, and np.asarray."""

import numpy as np
import pytest
from peers.against import jnp, torch

import retrograd as rg
from retrograd.core.errors import DtypeError

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


def pointer(x):
    """Where a tensor's memory begins."""
    return x.array.__array_interface__["data"][0]


def some(dtype, shape=(2, 3)):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


@pytest.mark.peers("torch")
@pytest.mark.parametrize("dtype", DTYPES)
def test_to_torch_shares_memory(dtype):
    x = rg.asarray(some(dtype))
    there = torch.from_dlpack(x)
    assert str(there.dtype) == f"torch.{dtype}"
    assert there.data_ptr() == pointer(x)
    np.testing.assert_array_equal(there.numpy(), some(dtype))


@pytest.mark.peers("torch")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_torch_writes_is_seen(dtype):
    x = rg.asarray(some(dtype))
    torch.from_dlpack(x)[0, 1] = 7
    assert float(x[0, 1]) == 7
    apart = torch.from_dlpack(x, copy=True)
    apart[0, 1] = 8
    assert float(x[0, 1]) == 7


@pytest.mark.peers("torch")
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.mT,
        lambda x: x[:, 1:],
        lambda x: x[::2],
        lambda x: x[1],
        lambda x: x[2:, ::2],
    ],
)
def test_views_go_to_torch_as_views(view):
    x = rg.asarray(some("float64", (4, 3)))
    there = torch.from_dlpack(view(x))
    np.testing.assert_array_equal(there.numpy(), np.asarray(view(x)))
    assert there.untyped_storage().data_ptr() - pointer(x) < x.array.nbytes


@pytest.mark.peers("torch")
@pytest.mark.parametrize("view", [rg.flip, lambda x: x[::-1], lambda x: x[..., 2:0:-1] * 1.0])
def test_what_runs_backwards_goes_to_torch(view):
    """torch aborts the process at a negative stride: it must never be handed one."""
    x = view(rg.asarray(some("float64", (4, 3))))
    assert min(np.from_dlpack(x).strides) > 0
    np.testing.assert_array_equal(torch.from_dlpack(x).numpy(), np.asarray(x))


@pytest.mark.peers("torch")
def test_memory_that_must_not_be_written_is_copied():
    spread = rg.broadcast_to(rg.asarray(some("float64")), (4, 2, 3))
    there = torch.from_dlpack(spread)
    there[0] = -1
    assert not (np.asarray(spread) == -1).any()
    locked = some("float64")
    locked.flags.writeable = False
    torch.from_dlpack(rg.asarray(locked, copy=False))[0] = -1
    assert not (locked == -1).any()


@pytest.mark.peers("torch")
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,)])
def test_no_axes_and_no_elements(shape):
    there = torch.from_dlpack(rg.asarray(some("float64", shape)))
    assert tuple(there.shape) == shape
    back = rg.from_dlpack(there)
    np.testing.assert_array_equal(np.asarray(back), some("float64", shape))


@pytest.mark.peers("torch")
@pytest.mark.parametrize("dtype", DTYPES)
def test_from_torch(dtype):
    there = torch.from_numpy(some(dtype))
    copied, shared = rg.from_dlpack(there), rg.from_dlpack(there, copy=False)
    assert str(copied.dtype) == str(shared.dtype) == dtype
    assert pointer(shared) == there.data_ptr() != pointer(copied)
    there[0, 0] = 1
    assert np.asarray(shared)[0, 0] == 1
    assert np.asarray(copied)[0, 0] == 0


@pytest.mark.peers("torch")
def test_there_and_back_is_the_same_memory():
    x = rg.asarray(some("float32"))
    assert pointer(rg.from_dlpack(torch.from_dlpack(x), copy=False)) == pointer(x)
    y = torch.ones(3)
    assert torch.from_dlpack(rg.from_dlpack(y, copy=False)).data_ptr() == y.data_ptr()


@pytest.mark.peers("torch")
def test_a_gradient_goes_there_and_back():
    """Half of a program in torch: its gradient is a cotangent for the other half."""
    x = rg.tensor(np.array([0.3, -0.7, 1.1]), requires_grad=True)
    middle = rg.sin(x) * x
    there = torch.from_dlpack(middle.detach()).clone().requires_grad_()
    there.exp().sum().backward()
    middle.backward(rg.from_dlpack(there.grad))
    wanted = rg.grad(lambda v: rg.sum(rg.exp(rg.sin(v) * v)))(x.detach())
    np.testing.assert_allclose(np.asarray(x.grad), np.asarray(wanted), rtol=1e-14)


@pytest.mark.peers("jax")
@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_both_ways(dtype):
    x = rg.asarray(some(dtype))
    there = jnp.from_dlpack(x)
    assert str(there.dtype) == dtype
    np.testing.assert_array_equal(np.asarray(there), some(dtype))
    mine = jnp.asarray(some(dtype))
    for copy in (None, True, False):
        back = rg.from_dlpack(mine, copy=copy)
        assert str(back.dtype) == dtype
        np.testing.assert_array_equal(np.asarray(back), some(dtype))
    assert pointer(rg.from_dlpack(mine, copy=False)) == mine.unsafe_buffer_pointer()


@pytest.mark.peers("jax")
def test_what_jax_lends_is_not_written_to():
    """jax's arrays never change: shared memory is read-only, and is copied on its way out."""
    mine = jnp.arange(3.0)
    shared = rg.from_dlpack(mine, copy=False)
    assert not shared.array.flags.writeable
    shared[0] = 5.0
    np.testing.assert_array_equal(np.asarray(mine), [0.0, 1.0, 2.0])
    assert float(shared[0]) == 5


@pytest.mark.peers("torch", "jax")
def test_asarray_takes_peers_arrays():
    import jax.numpy as jnp
    import torch

    for mine in (torch.ones(2, dtype=torch.float64), jnp.ones(2)):
        found = rg.asarray(mine)
        assert found.dtype == rg.float64
        np.testing.assert_array_equal(np.asarray(found), np.ones(2))


@pytest.mark.peers("torch")
def test_numpy_sees_a_tracked_tensor_and_cannot_write():
    x = rg.tensor([1.0, 2.0], requires_grad=True) * 2
    seen = np.asarray(x)
    assert np.shares_memory(seen, x.array)
    assert not seen.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 3
    np.testing.assert_array_equal(seen, torch.tensor([2.0, 4.0]).numpy())


@pytest.mark.peers("torch")
def test_arithmetic_with_peers_arrays_is_ours():
    """A tensor of ours beside one of theirs: theirs is read, the result is ours."""
    x = rg.asarray(np.ones(3))
    assert isinstance(x + np.ones(3), rg.Tensor)
    assert isinstance(np.ones(3) + x, rg.Tensor)
    with pytest.raises((DtypeError, TypeError)):
        x + "1"
