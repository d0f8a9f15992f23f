"""A loop of one's own, by partial backpropagation: torchrun --nproc-per-node 2 loop.py."""

import torch.distributed as dist
from torch import device, nn
from training import job

import jigsaw_opt

dist.init_process_group("gloo")
own = job(dist.get_rank(), dist.get_world_size(), device("cpu"))
model = jigsaw_opt.PartialBackprop(own.model, cuts=["blocks.1", "blocks.3"])
for rows, targets in own.loader:
    (loss := own.loss(model(rows), targets)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), own.clip_grad_norm)
    own.optimiser.step()
    own.schedule.step()
    model.zero_grad()
print(f"loss {float(loss.detach()):.3f}")
