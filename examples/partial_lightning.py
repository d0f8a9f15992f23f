"""A Lightning strategy that trains a module's network by partial backpropagation: ``python`` or ``torchrun``."""

import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

import jigsaw_opt


class _PartialStrategy(DDPStrategy):
    def _setup_model(self, model):
        model.network = jigsaw_opt.PartialBackprop(model.network, cuts=["2", "4"], debug=10)
        return model


class _Classifier(lightning.LightningModule):
    def training_step(self, rows, _):
        self.loss = torch.nn.functional.cross_entropy(self.network(rows), rows.argmax(1))
        return self.loss


torch.manual_seed(0)
module, rows = _Classifier(), torch.utils.data.DataLoader(torch.randn(512, 8), 32)
module.network = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(5)))
module.configure_optimizers = lambda: torch.optim.AdamW(module.parameters(), 1e-2)
place = {"accelerator": "cpu", "devices": int(os.environ.get("WORLD_SIZE", "1")), "strategy": _PartialStrategy()}
lightning.Trainer(**place, max_epochs=30, logger=False, enable_checkpointing=False).fit(module, rows)
print(f"loss {float(module.loss.detach()):.3f}")
