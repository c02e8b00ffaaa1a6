"""What `python -m applyufunc` runs, a user of the library like any other: it calls public functions only."""
