"""Train a DeepSurv network: the risk of patients from the activity of their genes, with the loss of a Cox model. A
checkpoint of the model and the optimizer is written in every step. Fix: a checkpoint every 50 steps."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PATIENTS, GENES, BATCH = 3000, 1500, 128


def patients(rng: np.random.Generator) -> TensorDataset:
    """Activities of genes, the time in which a patient was observed, and whether the patient died at its end."""
    genes = rng.normal(0, 1, (PATIENTS, GENES)).astype(np.float32)
    risk = genes[:, :20].sum(axis=1) / 4 + np.tanh(genes[:, 20] * genes[:, 21])
    death = rng.exponential(np.exp(-risk))
    censored = rng.exponential(2.0, PATIENTS)
    times = np.minimum(death, censored).astype(np.float32)
    return TensorDataset([paddle.to_tensor(value) for value in (genes, times, (death < censored).astype(np.float32))])


class RiskNet(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(GENES, 384),
            nn.SELU(),
            nn.Dropout(0.3),
            nn.Linear(384, 128),
            nn.SELU(),
            nn.Dropout(0.3),
            nn.Linear(128, 1),
        )

    def forward(self, genes: paddle.Tensor) -> paddle.Tensor:
        return self.layers(genes).squeeze(1)


def partial_likelihood(risks: paddle.Tensor, times: paddle.Tensor, died: paddle.Tensor) -> paddle.Tensor:
    """The negative logarithm of the likelihood that of all patients still alive, the ones who died were to die."""
    alive = (times.unsqueeze(0) >= times.unsqueeze(1)).astype("float32")
    total = paddle.logsumexp(risks.unsqueeze(0) + (alive - 1) * 1e9, axis=1)
    return -((risks - total) * died).sum() / died.sum()


def concordance(risks: np.ndarray, times: np.ndarray, died: np.ndarray) -> float:
    """The share of the pairs of patients in which the one with the higher risk died first."""
    pairs = (times[:, None] < times[None]) & (died[:, None] > 0)
    return float((risks[:, None] > risks[None])[pairs].mean())


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    interval = 50 if fixed else 1
    loader = DataLoader(patients(np.random.default_rng(0)), batch_size=BATCH, shuffle=True, drop_last=True)
    model = RiskNet()
    optimizer = paddle.optimizer.Adam(5e-4, parameters=model.parameters(), weight_decay=1e-4)
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        while True:
            for genes, times, died in loader:
                risks = model(genes)
                loss = partial_likelihood(risks, times, died)
                loss.backward()
                optimizer.step()
                optimizer.clear_grad()
                step += 1
                if step % interval == 0:
                    paddle.save(model.state_dict(), f"{folder}/risk.pdparams")
                    paddle.save(optimizer.state_dict(), f"{folder}/risk.pdopt")
                if step % 50 == 0:
                    index = concordance(risks.numpy(), times.numpy(), died.numpy())
                    print(f"step {step}: loss {float(loss):.3f}, concordance {index:.3f}", file=sys.stderr)
                yield


if __name__ == "__main__":
    run(training, "paddle", steps=250)
