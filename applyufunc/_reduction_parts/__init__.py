"""The parts of the ready-made reductions: what is known of a piece, how two pieces make one, and what comes of it."""
