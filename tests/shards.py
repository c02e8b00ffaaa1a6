"""Calls on arrays that eight devices share, as `test_jax_sharding` runs them: in a process of their own.

Prints, for each scenario, whether the values are right, with which shapes the kernel ran and how often, where the
result lies, and which operations between devices the compiled program has.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import re
import sys
import threading
import time
import weakref

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import applyufunc as au
from applyufunc._lowering._jax import _foreign

P = PartitionSpec
LIMIT = 150  # seconds for all scenarios; one that hangs shows where
COLLECTIVE = re.compile(
    r"= \(?(\w+)\[[^=]* (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)
X = np.arange(16 * 6 * 5, dtype="f4").reshape(16, 6, 5) / 7
W = np.arange(5, dtype="f4")
Y = np.random.default_rng(0).normal(size=(16, 6, 8)).astype("f4")
V = np.arange(8, dtype="f4")
calls = []
lock = threading.Lock()
scenarios = {}


def note(*arrays):
    with lock:
        calls.append(tuple(np.shape(array) for array in arrays))


def row_dot(x, w):
    note(x, w)
    return (x * w).sum(-1)


def argmax_of_part(x, offset):
    note(x)
    at = x.argmax(-1)
    return np.take_along_axis(x, at[..., None], -1)[..., 0], at + offset["n"]


def greater(a, i, b, j):
    return np.where(b > a, b, a), np.where(b > a, j, i)


dot = au.gufunc("(n),(n)->()", output_dtypes=np.float32)(row_dot)
gathered = dot.with_options(callback="pure_callback")
dot_by_parts = dot.with_options(core_chunks=au.Reduction(row_dot, np.add, state="(n),(n)->()"))
argmax = au.gufunc("(n)->()", output_dtypes=int)(lambda x: x.argmax(-1)).with_options(
    core_chunks=au.Reduction(argmax_of_part, greater, lambda _, i: i, state="(n)->(),()", offset=True)
)
sums = au.gufunc("(m,n)->(m)", output_dtypes=np.float32)(lambda x: x.sum(-1)).with_options(
    core_chunks=au.Reduction(lambda x: (note(x), x.sum(-1))[1], np.add, state="(m,n)->(m)", independent="m")
)
first_and_sum = au.gufunc("(m,n)->(),()", output_dtypes=np.float32)(lambda x: (x[..., 0, 0], x.sum((-1, -2))))
first_and_sum = first_and_sum.with_options(
    core_chunks=au.Reduction(
        lambda x: (note(x), x[..., 0, 0], x.sum((-1, -2)))[1:],
        lambda first, total, _, more: (first, total + more),
        state="(m,n)->(),()",
        state_dtypes=np.float64,  # which JAX does not hold here
    )
)


def scenario(name, expected, *, both=True):
    """Have what a function of a mesh gives, a function and its arrays, run in meshes of both kinds, or in Auto only."""

    def register(make):
        scenarios[name] = make, expected, both
        return make

    return register


def put(array, spec, mesh):
    return jax.device_put(array, NamedSharding(mesh, spec))


def simple(name, spec, *, function=dot, jit=jax.jit, both=True):
    scenario(name, (X * W).sum(-1), both=both)(lambda mesh: (jit(function) if jit else function, put(X, spec, mesh), W))


simple("loop dim", P("d"))
simple("both loop dims", P("d", "e"))
simple("loop dim along both axes", P(("d", "e")))
simple("second loop dim", P(None, "e"))
simple("replicated", P())
simple("eager", P("d"), jit=None)
simple("eager replicated", P(), jit=None)
simple("eager vmap", P("d"), function=jax.vmap(dot, (0, None)), jit=None)
simple("vmap of vmap", P("d", "e"), function=jax.vmap(jax.vmap(dot, (0, None)), (0, None)))
simple("pure_callback", P("d"), function=gathered)
simple("eager pure_callback", P("d"), function=gathered, jit=None, both=False)
simple("no jit at all", P("d"), function=jax.disable_jit()(dot), jit=None, both=False)


@scenario("result in use", (X * W).sum(-1) + 1)
def _(mesh):
    return lambda x, w: jax.jit(dot)(x, w) + 1, put(X, P("d"), mesh), W


@scenario("result of pure_callback in use", (X * W).sum(-1) + 1, both=False)
def _(mesh):
    return lambda x, w: jax.jit(gathered)(x, w) + 1, put(X, P("d"), mesh), W


@scenario("pmap", (X * W).sum(-1)[:8], both=False)
def _(mesh):
    mapped = jax.pmap(dot, in_axes=(0, None))
    return lambda x, w: put(mapped(x, w), P(), mesh), X[:8], W  # put, since JAX's own mesh has a name of its own


@scenario("vmap over the second axis", (X * W).sum(-1).T)
def _(mesh):
    return jax.jit(jax.vmap(dot, (1, None))), put(X, P("d"), mesh), W


@scenario("outer product by vmap", X[:, 0] @ X[0].T)
def _(mesh):
    return jax.jit(jax.vmap(jax.vmap(dot, (None, 0)), (0, None))), put(X[:, 0], P("d"), mesh), X[0]


@scenario("core dim", (Y * V).sum(-1))
def _(mesh):
    return jax.jit(dot), put(Y, P("d", None, "e"), mesh), V


@scenario("core dim alone", (Y * V).sum(-1))
def _(mesh):
    return jax.jit(dot), put(Y, P(None, None, "e"), mesh), V


@scenario("no loop dim", (V * V).sum())
def _(mesh):
    return jax.jit(dot), put(V, P("d"), mesh), V


@scenario("scan", 3 * (X * W).sum(-1))
def _(mesh):
    def looped(x):
        step = lambda carry, _: (carry + dot(x + 0 * carry[..., None], W), None)
        return jax.lax.scan(step, jnp.zeros_like(x[..., 0]), length=3)[0]

    return jax.jit(looped), put(X, P("d"), mesh)


@scenario("cond and checkpoint", 2 * (X * W).sum(-1))
def _(mesh):
    twice = jax.checkpoint(lambda x: 2 * dot(x, W))
    return jax.jit(lambda x, yes: jax.lax.cond(yes, twice, lambda x: x[..., 0], x)), put(X, P("d"), mesh), True


@scenario("out_shardings", (X * W).sum(-1), both=False)
def _(mesh):
    return jax.jit(dot, out_shardings=NamedSharding(mesh, P("d"))), X, W


@scenario("length that does not divide", (X * W).sum(-1)[:13], both=False)
def _(mesh):
    whole = NamedSharding(mesh, P("d"))
    return jax.jit(lambda x: dot(jax.lax.with_sharding_constraint(x, whole), W)), X[:13]


@scenario("one device", (X * W).sum(-1), both=False)
def _(mesh):
    return jax.jit(dot), X, W


@scenario("empty loop dim", np.zeros((0, 6)))
def _(mesh):
    return jax.jit(dot), put(X[:0], P("d"), mesh), W


@scenario("empty core dim", np.zeros((16, 6)))
def _(mesh):
    return jax.jit(dot), put(X[..., :0], P("d"), mesh), W[:0]


@scenario("set_mesh", (X * W).sum(-1))
def _(mesh):
    def function(x):
        with jax.set_mesh(mesh):
            return jax.jit(dot)(x, W)

    return function, put(X, P("d"), mesh)


@scenario("bfloat16", X)
def _(mesh):
    same = au.gufunc("(n)->(n)", output_dtypes=jnp.bfloat16)(lambda x: (note(x), x)[1])
    return jax.jit(same), put(X.astype(jnp.bfloat16), P("d"), mesh)


@scenario("dtypes not given", (X * W).sum(-1))
def _(mesh):
    function = au.gufunc("(n),(n)->()")(row_dot)
    x = put(X, P("d"), mesh)
    function(x, W)  # whose dtypes are looked for by one more call, and remembered
    return function, x, W


def mapped(name, specs, axis_names=("d", "e"), function=dot, check_vma=True):
    @scenario(name, (X * W).sum(-1))
    def _(mesh):
        inside = jax.shard_map(
            function, mesh=mesh, in_specs=(specs, P()), out_specs=specs, axis_names=set(axis_names), check_vma=check_vma
        )
        return jax.jit(inside), put(X, specs, mesh), put(W, P(), mesh)


mapped("shard_map", P("d", "e"))
mapped("shard_map without types", P("d", "e"), check_vma=False)
mapped("shard_map over one axis", P("d"), axis_names=("d",))
mapped("shard_map with vmap inside", P("d"), function=jax.vmap(dot, (0, None)))
mapped("shard_map with pure_callback", P("d", "e"), function=gathered)
mapped("shard_map over one axis with pure_callback", P("d"), axis_names=("d",), function=gathered)


@scenario("vmap of shard_map", (X * W).sum(-1))
def _(mesh):
    inside = jax.shard_map(dot, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
    return jax.jit(jax.vmap(inside, (1, None), 1)), put(X, P("d"), mesh), put(W, P(), mesh)


@scenario("reduction", (Y * V).sum(-1))
def _(mesh):
    return jax.jit(dot_by_parts), put(Y, P("d", None, "e"), mesh), V


@scenario("reduction along both axes", (Y * V).sum(-1))
def _(mesh):
    return jax.jit(dot_by_parts), put(Y, P(None, None, ("d", "e")), mesh), V


@scenario("eager reduction", (Y * V).sum(-1))
def _(mesh):
    return dot_by_parts, put(Y, P("d", None, "e"), mesh), V


@scenario("reduction of a loop that is cut", (Y * V).sum(-1))
def _(mesh):
    return jax.jit(dot_by_parts), put(Y, P("d"), mesh), V


@scenario("reduction under vmap", (Y * V).sum(-1).T)
def _(mesh):
    return jax.jit(jax.vmap(dot_by_parts, (1, None))), put(Y, P(None, None, "d"), mesh), V


@scenario("reduction with offset", Y.argmax(-1))
def _(mesh):
    return jax.jit(argmax), put(Y, P("e", None, "d"), mesh)


@scenario("reduction of two dims in order", np.stack([Y[:, 0, 0], Y.sum((-1, -2))]))
def _(mesh):
    return jax.jit(lambda x: jnp.stack(first_and_sum(x))), put(Y, P(None, "e", "d"), mesh)


@scenario("reduction with an independent dim", Y.transpose(1, 0, 2).sum(-1))
def _(mesh):
    return jax.jit(sums), put(Y.transpose(1, 0, 2), P(None, "d", "e"), mesh)


RULES = {
    "jac": {"jac": lambda x, w: (note(x, w), np.broadcast_to(w, x.shape), x)[1:]},
    "vjp": {"vjp": lambda x, w, ct: (note(x, w, ct), w * ct[..., None], x * ct[..., None])[1:]},
}
RULES["jac and jvp"] = RULES["jac"] | {"jvp": lambda x, w, dx, dw: (w * dx + x * dw).sum(-1)}


def differentiated(name, rules, place, transform=lambda function, mesh: function):
    """Have the derivative of a sum of squares by one argument taken, in which the kernel runs, too."""
    squares = 2 * (X * W).sum(-1)[..., None]

    @scenario(f"{name} by {rules}", (squares * W, (squares * X).sum((0, 1)))[place])
    def _(mesh):
        function = transform(dot.with_options(**RULES[rules]), mesh)
        loss = lambda x, w: (function(x, w) ** 2).sum()
        return jax.jit(jax.grad(loss, place)), put(X, P("d"), mesh), put(W, P(), mesh)


@scenario("forward derivative", (X * W).sum(-1))
def _(mesh):
    function = dot.with_options(**RULES["jac"])
    return jax.jit(lambda x, w: jax.jvp(lambda x: function(x, w), (x,), (x,))[1]), put(X, P("d"), mesh), W


def inside(function, mesh):
    return jax.shard_map(function, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))


def differentiated_by_core_dim(rules):
    """Have a derivative taken by what is cut along a core dim, which the kernel and its rule get whole."""

    @scenario(f"gradient along a core dim by {rules}", 2 * (Y * V).sum(-1)[..., None] * V)
    def _(mesh):
        function = dot.with_options(**RULES[rules])
        grad = jax.grad(lambda y, v: (function(y, v) ** 2).sum())
        return jax.jit(grad), put(Y, P(None, "e", "d"), mesh), put(V, P("d"), mesh)


for _rules in RULES:
    differentiated_by_core_dim(_rules)
    differentiated("gradient", _rules, 0)
    differentiated("gradient of what is everywhere", _rules, 1)
    differentiated("gradient of vmap", _rules, 0, lambda function, mesh: jax.vmap(function, (0, None)))
    differentiated("gradient of shard_map", _rules, 0, inside)
    differentiated("gradient of shard_map of what is everywhere", _rules, 1, inside)


def run(function, *arrays):
    """Return a result, and what was observed on the way to it."""
    program = function.lower(*arrays).compile() if hasattr(function, "lower") else None
    calls.clear()
    result = jax.block_until_ready((program or function)(*arrays))
    ran = [" ".join(map(str, shapes)) for shapes in calls]
    collectives = sorted({" ".join(found) for found in COLLECTIVE.findall(program.as_text())}) if program else []
    shapes = " or ".join(sorted(set(ran)))
    return result, [f"{len(ran)} x {shapes}", layout(result), ", ".join(collectives)]


def layout(array):
    return "one device" if len(array.devices()) == 1 else axes_text(array.sharding.spec)


def axes_text(spec):
    """Write the mesh axes of each axis of an array, as far as there are any."""
    named = [names if isinstance(names, str | None) else "+".join(names) for names in spec]
    return " ".join(names or "-" for names in named).rstrip("- ")


def outcome(make, expected, mesh):
    function, *arrays = make(mesh)
    result, observed = run(function, *arrays)
    expected = np.asarray(expected)
    right = result.shape == expected.shape and np.allclose(np.asarray(result, expected.dtype), expected, rtol=1e-2)
    parts = ((shard.data, np.asarray(result)[shard.index]) for shard in result.addressable_shards)
    there = all(np.array_equal(data, part) for data, part in parts)  # on each device, and not on the first alone
    return [bool(right and there), *observed, axes_text(jax.typeof(result).sharding.spec)]


def refusals():
    """Return the messages of what is refused, or raised."""
    explicit = make_mesh(AxisType.Explicit)
    failing = au.gufunc("(n)->()", output_dtypes=np.float32)(lambda x: 1 / 0)
    found = {}
    for name, call in {
        "two layouts": lambda: jax.jit(dot)(put(X, P("d"), explicit), put(X, P("e"), explicit)),
        "one axis twice": lambda: jax.jit(dot)(put(X[:, :1], P("d"), explicit), put(X[0, :4], P("d"), explicit)),
        "two meshes": lambda: dot(put(X, P("d"), explicit), put(X, P("a"), jax.make_mesh((8,), ("a",)))),
        "two devices": lambda: dot(put(X, P("d"), explicit), jax.device_put(W, jax.devices()[3])),
        "eager error": lambda: failing(put(X, P("d"), explicit)),
    }.items():
        try:
            found[name] = f"no error: {call().shape}"
        except Exception as error:  # noqa: BLE001  # which it is, is asked
            found[name] = f"{type(error).__name__}: {error}"
    return found


def lifetime():
    """Return whether a program keeps its kernel alive, for as long as it lives itself."""

    def make():
        kernel = lambda x: x.sum(-1)
        function = au.gufunc("(n)->()", output_dtypes=np.float32)(kernel)
        x = put(X, P("d"), make_mesh(AxisType.Auto))
        return jax.jit(function).lower(x).compile(), x, weakref.ref(kernel)

    program, x, kernel = make()
    forget()
    alive = kernel() is not None and np.allclose(program(x), X.sum(-1))
    del program
    forget()
    _foreign._ended().clear()  # of programs that ended, the last ones' kernels are kept
    return {"while": alive, "after": kernel() is not None}


def forget():
    for _ in range(65):  # more than the functions that are remembered
        jax.jit(au.gufunc("()->()", output_dtypes=np.float32)(lambda x: x)).lower(np.float32(1))
    jax.clear_caches()
    for _ in range(3):  # a program that is gone sets objects free which only then are garbage
        gc.collect()


def make_mesh(kind):
    return jax.make_mesh((4, 2), ("d", "e"), axis_types=(kind, kind))


def main():
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    found = {"refusals": refusals(), "lifetime": lifetime()}
    for kind in (AxisType.Auto, AxisType.Explicit):
        for name, (make, expected, both) in scenarios.items():
            if both or kind is AxisType.Auto:
                found[f"{name}, {kind.name}"] = outcome(make, expected, make_mesh(kind))
    json.dump(found, sys.stdout)
    leave_work()


def leave_work():
    """Start what nobody waits for: the process has to end all the same, and not before its kernels."""

    @au.gufunc("(n)->()", output_dtypes=np.float32, thread_safe=False)
    def slow(x):  # on every device, since there is nothing to split, one after the other
        time.sleep(0.05)
        return x.sum(-1)

    jax.jit(slow)(put(V, P(), make_mesh(AxisType.Auto))).addressable_data(0).block_until_ready()


if __name__ == "__main__":
    main()
