"""The mathematics: one module a model. A formulation builds and reads back; it never searches."""
