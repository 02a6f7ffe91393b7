"""Programs computed by a small C library: exact, without torch, built by the system's compiler at first use."""
