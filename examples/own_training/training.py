"""How the network is trained: a plan calls this function in the process of each worker."""

from types import SimpleNamespace

from model import Net, batches
from torch import device, optim
from torch.nn.functional import cross_entropy


def job(rank: int, world: int, device: device) -> SimpleNamespace:
    """Return all that a worker trains with."""
    own = SimpleNamespace(model=Net().to(device), loader=batches(rank, world), loss=cross_entropy, clip_grad_norm=1.0)
    own.optimiser = optim.AdamW(own.model.parameters(), 1e-2)
    own.schedule = optim.lr_scheduler.CosineAnnealingLR(own.optimiser, 1000)
    return own
