"""The benchmarks as `asv` finds them: a package of its own, since asv imports all modules of the one that it is given."""
