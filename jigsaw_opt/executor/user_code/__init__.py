"""Code of the user's own: imported, asked for a training or a model, its batches and its states."""
