"""A `Trainer` of transformers whose model is trained by partial backpropagation: ``python`` or ``torchrun``."""

import tempfile

import torch
import transformers

import jigsaw_opt


class _PartialTrainer(transformers.Trainer):
    def _wrap_model(self, model, training=True, dataloader=None):
        if not training or model is not self.model:
            return model
        return jigsaw_opt.PartialBackprop(model, cuts=["model.layers.1", "model.layers.3"], debug=10)


torch.manual_seed(0)
sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2}
network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
rows = [{"input_ids": row, "labels": row} for row in (torch.arange(64).view(-1, 1) + torch.arange(16)) % 64]
settings = {"num_train_epochs": 8, "learning_rate": 5e-3, "use_cpu": True, "report_to": [], "save_strategy": "no"}
with tempfile.TemporaryDirectory() as folder:
    trainer = _PartialTrainer(network, transformers.TrainingArguments(folder, **settings), train_dataset=rows)
    trainer.train()
    print(f"loss {trainer.evaluate(rows)['eval_loss']:.3f}")
