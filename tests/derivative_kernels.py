"""A kernel and its derivative kernels, which do for JAX and for PyTorch: a weighted sum of squares, on whole blocks."""

from __future__ import annotations

import numpy as np

import applyufunc as au


class Recorder:
    """A kernel that notes the shapes that it was called with."""

    def __init__(self, func):
        self.func = func
        self.shapes = []

    def __call__(self, *args, **keywords):
        self.shapes.append(tuple(map(np.shape, args)))
        return self.func(*args, **keywords)


def power(x, y):
    return (x**2 * y).sum(axis=-1)


def power_jac(x, y):
    return 2 * x * y, np.broadcast_to(x**2, np.broadcast_shapes(x.shape, y.shape))


def power_vjp(x, y, ct):
    return 2 * x * y * ct[..., None], x**2 * ct[..., None]


def power_jvp(x, y, dx, dy):
    return (2 * x * y * dx + x**2 * dy).sum(axis=-1)


def power_jac_jac(x, y):
    eye = np.eye(x.shape[-1])
    return 2 * y[..., None] * eye, 2 * x[..., None] * eye, 2 * x[..., None] * eye, None


def power_vjp_vjp(x, y, ct, cx, cy):
    c = ct[..., None]
    return 2 * c * (y * cx + x * cy), 2 * x * c * cx, (2 * x * y * cx + x**2 * cy).sum(axis=-1)


def power_vjp_jvp(x, y, ct, dx, dy, dct):
    c, dc = ct[..., None], dct[..., None]
    return 2 * (dx * y * c + x * dy * c + x * y * dc), 2 * x * dx * c + x**2 * dc


def power_jvp_jvp(x, y, dx, dy, ex, ey, edx, edy):
    return (2 * (ex * y * dx + x * ey * dx + x * y * edx + x * ex * dy) + x**2 * edy).sum(axis=-1)


def power_jvp_vjp(x, y, dx, dy, ct):
    c = ct[..., None]
    return 2 * (y * dx + x * dy) * c, 2 * x * dx * c, 2 * x * y * c, x**2 * c


def native_power(x, y):
    return (x**2 * y).sum(axis=-1)


def power_with(**rules):
    return au.gufunc("(n),(n)->()", output_dtypes=float, **rules)(power)


def second_order():
    """Return the gufunc objects whose derivatives have the rules for the second one, by decorators."""
    by_jac, by_kernels = power_with(), power_with()
    by_jac.jac(power_jac).jac(power_jac_jac)
    vjp = by_kernels.vjp(power_vjp)
    vjp.vjp(power_vjp_vjp)
    vjp.jvp(power_vjp_jvp)
    jvp = by_kernels.jvp(power_jvp)
    jvp.jvp(power_jvp_jvp)
    jvp.vjp(power_jvp_vjp)
    return by_jac, by_kernels


RULES = {
    "jac": {"jac": power_jac},
    "vjp": {"vjp": power_vjp},
    "jvp": {"jvp": power_jvp},
    "jvp and vjp": {"jvp": power_jvp, "vjp": power_vjp},
    "jac and vjp": {"jac": power_jac, "vjp": power_vjp},
    "jac and jvp": {"jac": power_jac, "jvp": power_jvp},
    "complex-step": {"jac": "complex-step"},
    "finite-difference": {"jac": "finite-difference"},
}
