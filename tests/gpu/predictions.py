#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts times of the CUDA backend on devices that have not been measured, from counted operations, bytes,
instructions and launches. Prints the tables of docs/performance/gpu.md ("Predictions"). All that is not counted is a
named constant here: if a measurement differs from a prediction, one of the constants is wrong.

    python3 tests/gpu/predictions.py
"""

import dataclasses

import bounds


@dataclasses.dataclass(frozen=True)
class Device:
    """A device's peak rates, from its data sheet: dense bf16 with fp32 sums, at boost clock."""
    name: str
    multiprocessors: int
    gigahertz: float
    gigabytes: float  # of memory traffic per second
    teraflops: float  # peak of bf16 matrix products
    mma: int          # bf16 multiply-adds per clock and multiprocessor with mma.sync


DEVICES = (
    Device("H100", 132, 1.755, 3350, 989, 1270),  # mma.sync reaches 0.62 of wgmma
    Device("H200", 132, 1.755, 4800, 989, 1270),
    Device("RTX 4090", 128, 2.52, 1008, 165, 256),
    Device("Orin", 16, 1.3, 205, 42.6, 1024),
)
LLAMA_8B = bounds.Shape(bounds.LLAMA_8B)

LIBRARY_SHARE = 0.65    # fraction of the peak that cuBLAS reaches in large products
ATTENTION_SHARE = 0.6   # fraction of the mma.sync rate that attention's tiles reach
BANDWIDTH_SHARE = 0.75  # fraction of the memory bandwidth that decoding reaches
ISSUE_SHARE = 0.8       # fraction of a multiprocessor's issue slots (and mma.sync rate) that is used
QUANTISED = 24576 / 183  # Q4_K multiply-adds per warp instruction (./dev ptxas)
Q4_K_BITS = 4.96        # bits per weight of an 8B model in Q4_K_M: 4.85 in the file, and 8-bit scales
MICROSECONDS = 1.5      # launch time of each kernel in a replayed step
KERNELS = 9             # per layer: two norms, four products, store and rope, attention and its merge, gate
CHOICE_PASSES = {"greedy": 1, "top-k 40, top-p 0.95": 16}
CHOICE_CYCLES = 12      # issue slots per id and pass in a thread, without FP64
CHOICE_FP64 = 14        # FP64 instructions per id in a pass that computes weights
CHOICE_WEIGHED = {"greedy": 0, "top-k 40, top-p 0.95": 11}
FP64_RATE = {"H100": 64, "H200": 64, "RTX 4090": 2, "Orin": 2}  # FP64 instructions per clock and multiprocessor


def parameters(shape: bounds.Shape) -> float:
    return shape.L * shape.row_flops() / 2 + shape.C * shape.V


def weight_bytes(shape: bounds.Shape, bits: float) -> float:
    return parameters(shape) * bits / 8


def product_rate(device: Device, quantised: bool) -> float:
    """Returns the rate of matrix products, in operations per second."""
    if not quantised:
        return device.teraflops * 1e12 * LIBRARY_SHARE
    of_instructions = device.multiprocessors * device.gigahertz * 1e9 * 4 * QUANTISED * 2 * ISSUE_SHARE
    of_tensor_cores = device.multiprocessors * device.gigahertz * 1e9 * device.mma * 2 * ISSUE_SHARE
    return min(of_instructions, of_tensor_cores)


def attention_rate(device: Device) -> float:
    return device.multiprocessors * device.gigahertz * 1e9 * device.mma * 2 * ATTENTION_SHARE


def prefill(device: Device, shape: bounds.Shape, quantised: bool, begin: int, end: int) -> float:
    """Returns the seconds for rows [begin, end) of one prompt, with the logits of the last row."""
    rows = end - begin
    products = shape.L * rows * shape.row_flops() / product_rate(device, quantised)
    attention = shape.L * bounds.pairs(begin, end) * shape.pair_flops() / attention_rate(device)
    read = weight_bytes(shape, Q4_K_BITS if quantised else 16) / (device.gigabytes * 1e9 * BANDWIDTH_SHARE)
    return max(products, read) + attention + launches(shape)


def launches(shape: bounds.Shape) -> float:
    return shape.L * KERNELS * MICROSECONDS * 1e-6


def decode(device: Device, shape: bounds.Shape, quantised: bool, batch: int, depth: int) -> float:
    """Returns the seconds of one decode step: `batch` sequences with `depth` cached tokens each."""
    kv = batch * depth * 4 * shape.L * shape.K * shape.D
    read = weight_bytes(shape, Q4_K_BITS if quantised else 16) + kv
    return read / (device.gigabytes * 1e9 * BANDWIDTH_SHARE) + launches(shape)


def choice(device: Device, shape: bounds.Shape, how: str) -> float:
    """Returns the seconds in which one block chooses a token. Its threads share the multiprocessor's FP64 units."""
    clocks = CHOICE_PASSES[how] * shape.V / 1024 * CHOICE_CYCLES * 8
    clocks += CHOICE_WEIGHED[how] * shape.V * CHOICE_FP64 / FP64_RATE[device.name]
    return clocks / (device.gigahertz * 1e9)


def first_tokens(device: Device, shape: bounds.Shape, quantised: bool) -> dict[str, float]:
    """Returns the seconds to the first token of agent 5, by method: role 128 tokens, question 1,024, answers 512."""
    case = dict(prefix=128, question=1024, output=512, agent=5)
    end = bounds.layout(**case)[1][-1][1]
    rectified = bounds.rectify_flops(shape, [3, 4, 22], 0.2, **case)
    kv = end * 4 * shape.L * shape.K * shape.D
    read = weight_bytes(shape, Q4_K_BITS if quantised else 16) / (device.gigabytes * 1e9 * BANDWIDTH_SHARE)
    return {"full": prefill(device, shape, quantised, 0, end),
            "prefix": prefill(device, shape, quantised, 128, end),
            # Keys and values are read and written once; the rows run in three steps.
            "rectify": max(rectified / product_rate(device, quantised), read)
            + 2 * kv / (device.gigabytes * 1e9 * BANDWIDTH_SHARE) + 3 * launches(shape),
            "lockstep": decode(device, shape, quantised, 2, end)}


def table(title: str, rows: list[tuple[str, list[str]]]) -> None:
    print(f"| {title} | " + " | ".join(device.name for device in DEVICES) + " |")
    print("| --- |" + " --- |" * len(DEVICES))
    for name, cells in rows:
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    shape = LLAMA_8B
    formats = (("bf16", False), ("Q4_K_M", True))
    table("prefill, tokens/s", [(f"{name}, {rows:,} tokens",
                                 [number(rows / prefill(device, shape, quantised, 0, rows)) for device in DEVICES])
                                for name, quantised in formats for rows in (512, 2048, 8192, 16384)])
    table("decode, tokens/s", [(f"{name}, {batch} at {depth:,}",
                                [number(batch / decode(device, shape, quantised, batch, depth)) for device in DEVICES])
                               for name, quantised in formats for batch in (1, 8) for depth in (1024, 4096)])
    table("choice of a token, ms", [(how, [number(choice(device, shape, how) * 1e3) for device in DEVICES])
                                    for how in CHOICE_PASSES])
    table("first token of agent 5, ms",
          [(f"{name}, {method}",
            [number(first_tokens(device, shape, quantised)[method] * 1e3) for device in DEVICES])
           for name, quantised in formats for method in ("full", "prefix", "rectify", "lockstep")])


if __name__ == "__main__":
    main()
