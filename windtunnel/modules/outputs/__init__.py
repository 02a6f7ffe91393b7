"""Links and the other steps between raw scores and the outputs of methods."""
