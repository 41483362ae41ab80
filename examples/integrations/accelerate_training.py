"""Train a small model with Accelerate, record steps 5 to 9 into ``runs/accelerate``, and log the throughput.

Needs: pip install "perfkit[torch]" accelerate
Then: perfkit summary runs/accelerate
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import perfkit

if __name__ == "__main__":
    accelerator = Accelerator()
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    data = DataLoader(TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,))), batch_size=16)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters()), data)
    with perfkit.torch.Throughput() as throughput:
        for number, (x, y) in enumerate(perfkit.profile(throughput.reader(loader), "runs/accelerate", window=(5, 9))):
            accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            throughput.step(num_samples=len(x))
            if number % 10 == 9:
                accelerator.print(throughput.metrics())  # with a tracker: accelerator.log(…, step=number)
