"""What applyufunc costs beside its peers, measured in one run: `python -m benchmarks`.

A *family* is a module here that has what `_family.Family` says; `_families.FAMILIES` lists them. A *case* is a function
that makes the arrays and returns *ways*: functions without arguments that do the same work, one of them ours. `_runs`
gives every way of every case a process of its own, round after round; `growth` takes some ways to ever larger sizes;
`_page` and `_picture` write what was found into the documentation, and `asv_suite` shows the same ways to asv. A family
for another array library is a further module beside these, and a line in `_families`.
"""
