"""`applyufunc._kernel`: names, keywords, pickles and locks of kernels."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import subprocess
import sys

import module_with_gufuncs as held
import numpy as np
import pytest

from applyufunc import OptionError, _locks
from applyufunc._kernel import Home, describes_itself, function_name, make_kernel, parameters_of
from applyufunc._options import Options, make_options


def double(x):
    return 2 * x


class Callable:
    def __call__(self, x, degree=1):
        return x

    def method(self, x, degree=1):
        return x


def kernel_of(gufunc):
    return gufunc._kernel


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (double, "double"),
        (np.vecdot, "vecdot"),
        (len, "len"),
        (functools.partial(double), "double"),
        (functools.partial(functools.partial(np.sum, axis=-1)), "sum"),
        (Callable(), "Callable"),
        (Callable().method, "method"),
        (np.vectorize(double), "double"),
    ],
)
def test_a_function_is_known_by_its_name(func, name):
    assert function_name(func) == name


@pytest.mark.parametrize(
    ("func", "nin", "names", "open_ended"),
    [
        (lambda x, y, degree=1, *, mode=None: x, 2, {"degree", "mode"}, False),
        (lambda x, y, degree=1: x, 1, {"y", "degree"}, False),
        (lambda x, /, degree=1: x, 1, {"degree"}, False),
        (lambda *args, mode=None: args, 2, {"mode"}, False),
        (lambda x, **keywords: x, 1, set(), True),
        (functools.partial(lambda x, degree, mode: x, mode=1), 1, {"degree", "mode"}, False),
        (Callable(), 1, {"degree"}, False),
        (Callable().method, 1, {"degree"}, False),
        (np.vecdot, 2, {"casting", "dtype", "order", "subok"}, False),
        (held.spread, 1, {"scale"}, False),
        (functools.wraps(double)(lambda *args: args), 1, set(), False),
        (getattr, 1, set(), True),
    ],
)
def test_the_keywords_of_a_function_are_those_beyond_its_arguments(func, nin, names, open_ended):
    parameters = parameters_of(func, nin)
    assert (parameters.names, parameters.open_ended) == (names, open_ended)


def test_ufuncs_and_gufunc_objects_describe_themselves():
    assert [describes_itself(func) for func in (np.add, np.vecdot, held.spread, double)] == [True, True, True, False]


def test_numba_kernels_describe_themselves():
    numba = pytest.importorskip("numba")
    compiled = numba.vectorize(["f8(f8,f8)"])(lambda x, y: x + y)
    lazily = numba.guvectorize("(n)->()")(lambda x, result: None)
    assert describes_itself(compiled)
    assert describes_itself(lazily)
    assert make_kernel(lazily, Options()).gets_copies


@pytest.mark.parametrize(
    "kernel",
    [
        make_kernel(double, Options()),
        make_kernel(np.vecdot, make_options(Options(), {"thread_safe": False, "kernel_token": "x", "writable": True})),
        kernel_of(held.spread),
        kernel_of(held.spread_of_items),
        kernel_of(held.dot),
    ],
    ids=lambda kernel: kernel.name,
)
@pytest.mark.parametrize("load", [lambda kernel: pickle.loads(pickle.dumps(kernel)), copy.copy, copy.deepcopy])
def test_a_kernel_survives(kernel, load):
    assert load(kernel) == kernel


def test_a_decorated_kernel_pickles_by_the_name_of_the_object():
    kernel = kernel_of(held.spread)
    assert kernel.is_found_at_home
    assert kernel.home == Home("module_with_gufuncs", "spread")
    assert b"spread" in pickle.dumps(kernel)
    assert len(pickle.dumps(kernel)) < 400


def test_a_kernel_that_left_its_home_pickles_by_value():
    cloudpickle = pytest.importorskip("cloudpickle")
    factor = 3

    def local(x):
        return factor * x

    kernel = make_kernel(local, Options(), Home("module_with_gufuncs", "nothing"))
    assert not kernel.is_found_at_home
    assert pickle.loads(cloudpickle.dumps(kernel)).func(2) == 6
    assert not make_kernel(double, Options(), Home("module_with_gufuncs", "spread")).is_found_at_home


@pytest.mark.parametrize("home", [Home("no_such_module", "f"), Home("module_with_gufuncs", "a.b"), Home("", "f")])
def test_nothing_is_found_where_nothing_is(home):
    assert home.find() is None


def test_looking_for_a_home_imports_nothing(tmp_path, monkeypatch):
    (tmp_path / "module_not_loaded.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert Home("module_not_loaded", "f").find() is None


def test_a_kernel_of_the_main_module_is_not_found_by_name():
    assert not make_kernel(double, Options(), Home("__main__", "double")).is_found_at_home


def guard_of(func, **options):
    return make_kernel(func, make_options(Options(), {"thread_safe": False, **options})).guard()


def test_copies_of_a_kernel_share_a_lock():
    kernel = make_kernel(double, make_options(Options(), {"thread_safe": False}))
    copied = pickle.loads(pickle.dumps(kernel))
    assert kernel.guard() is copied.guard() is guard_of(double)
    assert guard_of(double) is not guard_of(np.vecdot)


def test_variants_of_one_function_share_a_lock():
    assert guard_of(double, kernel_token="a") is guard_of(double, kernel_token="b")
    assert guard_of(double) is not guard_of(np.sum)


def test_a_lock_that_is_held_is_the_one_that_copies_get():
    with guard_of(double):
        held_now = _locks._locks[(double.__module__, "double")]
        assert guard_of(double) is held_now


def test_locks_are_not_kept_for_good():
    before = len(_locks._locks)
    for number in range(20):
        with guard_of(double, kernel_token=f"kernel {number}"):
            pass
    assert len(_locks._locks) == before


def test_a_thread_safe_kernel_holds_nothing():
    kernel = make_kernel(double, Options())
    with kernel.guard() as first, kernel.guard() as second:
        assert (first, second) == (None, None)


def test_a_method_pickles_with_its_options_once():
    rows = np.arange(9.0).reshape(3, 3)
    bound = held.Scaled(2).running_total
    for _ in range(3):
        bound = pickle.loads(pickle.dumps(bound))
        np.testing.assert_array_equal(bound(rows), 2 * np.cumsum(rows, axis=0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_process_does_not_wait_for_a_lock_that_nobody_will_release():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [b"6.0"])


FORKING = """
import os, threading, numpy as np, applyufunc as au
entered, leave = threading.Event(), threading.Event()
def kernel(x):
    if threading.current_thread() is not threading.main_thread():
        entered.set()
        leave.wait()
    return x.sum(axis=-1)
total = au.gufunc("(n)->()", thread_safe=False)(kernel)
thread = threading.Thread(target=total, args=(np.ones(3),))
thread.start()
entered.wait()
child = os.fork()
if child == 0:
    print(total(np.array([1.0, 2.0, 3.0])), flush=True)
    os._exit(0)
os.waitpid(child, 0)
leave.set()
thread.join()
"""


def test_compiled_loop_needs_numba(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OptionError, match="vectorize='numba' needs Numba, which is not installed: pip install numba"):
        make_kernel(lambda x: x, make_options(Options(), {"vectorize": "numba"}))
