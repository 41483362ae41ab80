"""Train a small model with Lightning and record steps 5 to 9 into ``runs/lightning``.

Needs: pip install "perfkit[torch]" lightning
Then: perfkit summary runs/lightning
"""

from __future__ import annotations

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

from perfkit_torch.integrations.lightning import PerfkitCallback


class Classifier(LightningModule):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
        self.net(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,))), batch_size=64)
    callback = PerfkitCallback("runs/lightning", steps=(5, 9), record_shapes=True)
    trainer = Trainer(accelerator="auto", max_epochs=2, callbacks=[callback], logger=False, enable_checkpointing=False)
    trainer.fit(Classifier(), data, data)
