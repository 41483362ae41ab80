"""Train a small Conformer that removes noise from speech, with masks on the spectrogram. The forward pass runs in
bfloat16 with autocast, as for a graphics card, but on a processor. Fix: float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CLIPS, SAMPLES, RATE, BATCH = 64, 8000, 8000, 4
FFT, HOP, WIDTH, HEADS, BLOCKS, KERNEL = 256, 64, 48, 4, 2, 15


class ConvolutionModule(nn.Module):
    """A gated separable convolution along time."""

    def __init__(self) -> None:
        super().__init__()
        self.gated = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)
        self.norm = nn.GroupNorm(4, WIDTH)
        self.out = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.glu(self.gated(x.transpose(1, 2)), dim=1)
        return self.out(F.silu(self.norm(self.depthwise(x)))).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, frames, _ = x.shape
        queries, keys, values = self.project(x).view(batch, frames, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(queries, keys, values)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Conformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.before, self.after = self.feed_forward(), self.feed_forward()
        self.attention, self.convolution = Attention(), ConvolutionModule()

    @staticmethod
    def feed_forward() -> nn.Sequential:
        return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.before(self.norms[0](x))
        x = x + self.attention(self.norms[1](x))
        x = x + self.convolution(self.norms[2](x))
        return x + 0.5 * self.after(self.norms[3](x))


class Enhancer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        bins = FFT // 2 + 1
        blocks = [Conformer() for _ in range(BLOCKS)]
        self.masks = nn.Sequential(nn.Linear(bins, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, bins))

    def forward(self, magnitudes: torch.Tensor) -> torch.Tensor:
        """Magnitudes without the noise."""
        frames = torch.log1p(magnitudes).transpose(1, 2)
        return magnitudes * torch.sigmoid(self.masks(frames)).transpose(1, 2)


def recordings() -> TensorDataset:
    """Voices of a few harmonics whose loudness changes, with noise and without it."""
    time = torch.arange(SAMPLES) / RATE
    pitch = 90 + 160 * torch.rand(CLIPS, 1)
    voices = sum(torch.sin(2 * torch.pi * pitch * number * time) / number for number in range(1, 6))
    loudness = torch.sin(2 * torch.pi * (1 + 3 * torch.rand(CLIPS, 1)) * time).clamp(min=0)
    clean = 0.3 * loudness * voices
    return TensorDataset(clean + 0.1 * torch.randn(CLIPS, SAMPLES), clean)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(recordings(), batch_size=BATCH, shuffle=True)
    window = torch.hann_window(FFT)
    model = Enhancer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        for noisy, clean in loader:
            heard, wanted = (
                torch.stft(sound, FFT, HOP, window=window, return_complex=True).abs() for sound in (noisy, clean)
            )
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not fixed):
                loss = F.l1_loss(model(heard), wanted)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=150)
