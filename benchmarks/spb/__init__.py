"""Does SPB learn as full backpropagation does: what `spb_learning.py` measures and how it judges."""
