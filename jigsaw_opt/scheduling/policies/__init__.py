"""The policies of the field, one module each, all of the shape of `fifo`."""
