"""Training steps, run one by one or, on a GPU, recorded once and replayed.

A step of a small batch is thousands of kernels, and telling the GPU about each takes longer than some of them run. A
recorded step is told with one call. What changes from step to step (rows, pixels, motions, learning rate) is copied
into the tensors that the recording reads. Of several processes each reads and augments its share of every batch; what
they exchange is part of the recording.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bomd import processes, spread
from bomd.config import DeviceSettings, FitSettings
from bomd.data.augment import Motion
from bomd.data.batches import Images
from bomd.errors import InputError
from bomd.learn.learner import Batch, Learner
from bomd.networks.backbone import Network

PLAIN_STEPS = 3  # before a phase is recorded: libraries choose algorithms and the optimiser makes its state
AHEAD = 16  # steps that the host may run ahead of the GPU in each of two blocks, so that progress stays honest


@dataclass(frozen=True)
class Epoch:
    """What the steps of an epoch go through."""

    order: Tensor  # (steps * B) rows of the training table
    motions: list[Motion] | None  # the augmentation of each view, for every entry of `order`
    rates: list[float]  # the learning rate of each step
    phase: object  # steps of the same one may be replayed from one recording


class Steps:
    """Runs the steps of a learner on its networks."""

    def __init__(
        self,
        learner: Learner,
        networks: Sequence[Network],
        images: Images,
        targets: Tensor,
        settings: FitSettings,
        device: DeviceSettings,
    ) -> None:
        """Make the optimiser and decide whether to record; `targets` are (N, C) on the device."""
        self.learner, self.networks, self.images, self.targets = learner, networks, images, targets
        self.settings, self.batch = settings, min(settings.batch, len(targets))
        self.weights = [weight for network in networks for weight in network.parameters() if weight.requires_grad]
        self._gpu = targets.device.type == "cuda"
        # On a GPU the rate is a tensor: a recording reads the tensor, not the number it held.
        self._rate = torch.tensor(settings.rate, device=targets.device) if self._gpu else settings.rate
        self.optimiser = torch.optim.Adam(
            self.weights,
            lr=self._rate,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.decay,
            fused=device.fused and self._gpu,  # on a CPU it gains little
            capturable=self._gpu,
        )
        self._shared = processes.joined() and processes.count() <= self.batch
        self._own = spread.own_part(self.batch) if self._shared else slice(0, self.batch)
        record = self._gpu and device.graphs and learner.recordable
        # Before others in line: a network may have work done beside it that nothing waits for (`bomd.kernels.beside`).
        self._stream = torch.cuda.Stream(targets.device, priority=-1) if record else None  # type: ignore[no-untyped-call]
        self._recording: _Recording | None = None
        self._plain = 0  # steps of the present phase so far
        self._phase: object = None
        self._loss = torch.zeros((), device=targets.device, dtype=torch.float64)

    def restore(self, state: dict[str, object]) -> None:
        """Continue with an optimiser's saved state."""
        self.optimiser.load_state_dict(state)
        for group in self.optimiser.param_groups:
            group["lr"] = self._rate

    def close(self) -> None:
        """Forget the recording: a group of processes cannot part while one holds its exchanges."""
        self._recording = None

    def run(self, epoch: Epoch, advance: Callable[[], None]) -> tuple[float, int]:
        """Run all steps; return the mean loss and how many images went through the networks."""
        if epoch.phase != self._phase:
            self._phase, self._plain, self._recording = epoch.phase, 0, None
        self._loss.zero_()
        before, replayed = _shown(self.networks), 0
        waiting: deque[torch.cuda.Event] = deque()
        batches = epoch.order.view(-1, self.batch)
        own = batches[:, self._own]
        for network in self.networks:
            network.batch = self.batch if self._shared and not self.learner.mixes else 0
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            read = self.images.iterate(own.flatten(), own.shape[1])
            for number, (index, (_, pixels)) in enumerate(zip(batches.to(self.targets.device), read, strict=True)):
                part = slice(number * self.batch + self._own.start, number * self.batch + self._own.stop)
                motions = None if epoch.motions is None else [motion.take(part) for motion in epoch.motions]
                self._set_rate(epoch.rates[number])
                if self._stream is not None and self._recording is None and self._plain >= PLAIN_STEPS:
                    self._recording = _Recording(self._step, index, pixels, motions, self.networks, self._stream)
                if self._recording is not None:
                    self._recording.replay(index, pixels, motions)
                    replayed += self._recording.shown
                else:
                    self._step(index, pixels, motions)
                    self._plain += 1
                if self._stream is not None and number % AHEAD == AHEAD - 1:
                    waiting.append(self._stream.record_event())
                    if len(waiting) > 2:
                        waiting.popleft().synchronize()
                advance()
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        for network in self.networks:
            network.batch = 0
        return float(self._loss) / len(epoch.rates), _shown(self.networks) - before + replayed

    def _set_rate(self, rate: float) -> None:
        if isinstance(self._rate, Tensor):
            self._rate.fill_(rate)
        else:
            for group in self.optimiser.param_groups:
                group["lr"] = rate

    def _step(self, index: Tensor, pixels: Tensor, motions: list[Motion] | None) -> None:
        gathers = self._shared and self.learner.mixes
        batch = Batch(index, self.targets[index], pixels, self.networks[0].channels, motions, gathers)
        loss = self.learner.step(self.networks, batch)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if processes.joined():
            spread.average_gradients(self.weights)
        if self.settings.clip > 0:
            for network in self.networks:
                nn.utils.clip_grad_norm_(network.parameters(), self.settings.clip)
        self.optimiser.step()
        self.learner.after_step(self.networks)
        self._loss += loss.detach()


class _Recording:
    """One step as a CUDA graph, with the tensors that it reads; `shown` images go through the networks in it."""

    def __init__(
        self,
        step: Callable[[Tensor, Tensor, list[Motion] | None], None],
        index: Tensor,
        pixels: Tensor,
        motions: list[Motion] | None,
        networks: Sequence[Network],
        stream: torch.cuda.Stream,
    ) -> None:
        self._inputs = [part.clone() for part in _tensors(index, pixels, motions)]
        before = [network.shown for network in networks]
        for network in networks:
            network.zero_grad(set_to_none=True)  # gradients then live in the recording's own memory
        self._graph = torch.cuda.CUDAGraph()
        own_index, own_pixels, *rest = self._inputs
        own_motions = None if motions is None else _motions(rest, motions)
        try:
            # What other threads do meanwhile is no concern of it: one reads images, one watches over exchanges.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                step(own_index, own_pixels, own_motions)
        except RuntimeError as error:
            raise InputError(
                f"A training step could not be recorded ({str(error).splitlines()[0]}): set device.graphs=false, or, "
                "in a method of your own, recordable = False."
            ) from error
        self.shown = _shown(networks) - sum(before)
        for network, count in zip(networks, before, strict=True):
            network.shown = count  # recording computes nothing

    def replay(self, index: Tensor, pixels: Tensor, motions: list[Motion] | None) -> None:
        for own, given in zip(self._inputs, _tensors(index, pixels, motions), strict=True):
            own.copy_(given, non_blocking=True)
        self._graph.replay()


def _tensors(index: Tensor, pixels: Tensor, motions: list[Motion] | None) -> list[Tensor]:
    flat = [part for motion in motions or () for part in (motion.matrix, motion.brightness, motion.contrast)]
    return [index, pixels, *flat]


def _motions(tensors: Sequence[Tensor], like: Sequence[Motion]) -> list[Motion]:
    threes = zip(tensors[0::3], tensors[1::3], tensors[2::3], like, strict=True)
    return [Motion(matrix, brightness, contrast, old.padding) for matrix, brightness, contrast, old in threes]


def _shown(networks: Sequence[Network]) -> int:
    """Images that went through the networks so far."""
    return sum(network.shown for network in networks)
