"""A GPT-2 from a configuration, trained by partial backpropagation: ``python`` or ``torchrun --nproc-per-node 2``."""

import os

import torch
import transformers

import jigsaw_opt

if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
sizes = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 4, "n_head": 2}
network = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes))
network.gradient_checkpointing_enable()  # levels and checkpointing go together
model = jigsaw_opt.PartialBackprop(network, cuts=["transformer.h.1", "transformer.h.3"], debug=10)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
for _ in range(40):
    tokens = (torch.randint(64, (8, 1)) + torch.arange(16)) % 64
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
print(f"loss {float(loss.detach()):.3f}")
if "RANK" in os.environ:
    torch.distributed.destroy_process_group()
