"""The exchange of gradients between the workers of a job."""
