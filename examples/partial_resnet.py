"""A ResNet of torchvision, trained by partial backpropagation: ``python`` or ``torchrun --nproc-per-node 2``."""

import os

import torch
import torchvision

import jigsaw_opt

if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
network = torchvision.models.resnet18(num_classes=4)
model = jigsaw_opt.PartialBackprop(network, cuts=["layer2", "layer3", "layer4"], debug=10)
optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
for _ in range(30):
    labels = torch.randint(4, (16,))
    images = torch.randn(16, 3, 32, 32) + labels.view(-1, 1, 1, 1)
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(model.describe())
print(f"loss {float(loss.detach()):.3f}")
if "RANK" in os.environ:
    torch.distributed.destroy_process_group()
