"""The benchmarks as asv finds them, in a package of their own, since asv imports every module of one."""
