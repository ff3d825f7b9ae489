#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden quantised checkpoints: tiny random models, and what other packages read from them.

    pip download --no-deps autoawq==0.2.9 auto-gptq==0.7.1     and unpack them: neither imports next to Transformers 5
    python make_quantized.py --autoawq DIR --autogptq DIR [--out quantized] [--only NAME]

Needs torch, transformers 5, compressed-tensors and safetensors. The matrices are quantised and packed here; their
values are what the packages make of the packed tensors, with scales widened to float32 first: GPTQ from auto-gptq, AWQ
from autoawq, FP8 from Transformers (blocks) and compressed-tensors (whole tensors and channels), MXFP4 from
Transformers.

quantized/NAME/ is like models/NAME/ (make_models.py); goldens.json also has

    weights      {name: FNV-1a over the 32-bit words of the matrix's float32 values, hexadecimal}
    stored       what the engine keeps the matrices as: Q4_0, Q5_0, F32 or MXFP4
"""

import argparse
import importlib.util
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import make_models

SIZES = dict(make_models.BASE, hidden_size=64, intermediate_size=96, num_hidden_layers=2, vocab_size=160)
GROUP = 32
BLOCK = 32
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # bits [4 i, 4 i + 4) of a word are output AWQ_ORDER[i] of eight


def module_of(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(integers):
    """[..., 8] integers of 4 bits, the first lowest, as int32."""
    shifted = integers.numpy().astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))
    return torch.from_numpy(np.bitwise_or.reduce(shifted, axis=-1).astype(np.uint32).view(np.int32).copy())


def round_in_groups(weight, group_of, symmetric, lowest_zero):
    """Codes [N, C], zeros [N, G], scales [N, G] in float16."""
    groups = int(group_of.max()) + 1
    codes = torch.zeros(weight.shape, dtype=torch.int32)
    zeros, scales = torch.full((weight.shape[0], groups), 8), torch.zeros(weight.shape[0], groups)
    for group in range(groups):
        columns = (group_of == group).nonzero()[:, 0]
        part = weight[:, columns]
        if symmetric:
            scales[:, group] = (part.abs().amax(1) / 7.5).half().float()
        else:
            low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
            scales[:, group] = ((high - low) / 15).half().float()
            zeros[:, group] = (-low / scales[:, group]).round().clamp(lowest_zero, 15).long()
        codes[:, columns] = ((part / scales[:, group, None]).round() + zeros[:, group, None]).clamp(0, 15).int()
    return codes, zeros, scales.half()


def gptq(weight, packages, generator, symmetric, ordered):
    outputs, inputs = weight.shape
    group_of = torch.arange(inputs) // GROUP
    if ordered:
        group_of = group_of[torch.randperm(inputs, generator=generator)]
    codes, zeros, scales = round_in_groups(weight, group_of, symmetric, 1)  # packages differ on zeros of 0
    tensors = dict(qweight=words(codes.T.reshape(inputs // 8, 8, outputs).transpose(1, 2)),
                   qzeros=words(((zeros.T - 1) & 15).reshape(-1, outputs // 8, 8)),
                   scales=scales.T.contiguous(), g_idx=group_of.int())
    module = packages["gptq_ordered" if ordered else "gptq"].QuantLinear(4, GROUP, inputs, outputs, bias=False,
                                                                        weight_dtype=torch.float32)
    for name, value in tensors.items():
        if ordered or name != "g_idx":
            setattr(module, name, value.float() if name == "scales" else value)
    return {"weight": None} | tensors, module(torch.eye(inputs)).T


def awq(weight, packages, generator):
    outputs, inputs = weight.shape
    codes, zeros, scales = round_in_groups(weight, torch.arange(inputs) // GROUP, False, 0)
    pack = lambda values: words(values.T.reshape(-1, outputs // 8, 8)[..., AWQ_ORDER])
    tensors = dict(qweight=pack(codes), qzeros=pack(zeros), scales=scales.T.contiguous())
    values = packages["awq"].dequantize_gemm(tensors["qweight"], tensors["qzeros"], tensors["scales"].float(), 4, GROUP)
    return {"weight": None} | tensors, values.T


def to_fp8(weight, scale):
    return (weight / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def fp8_blocks(weight, packages, generator):
    outputs, inputs = weight.shape
    grid = weight.reshape(outputs // BLOCK, BLOCK, inputs // BLOCK, BLOCK).abs().amax((1, 3)) / 448
    spread = grid.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    tensors = dict(weight=to_fp8(weight, spread), weight_scale_inv=grid)
    return tensors, packages["fp8"](None)._dequantize_one(tensors["weight"], grid, torch.float32)


def mxfp4(weight, packages, generator):
    """Of all experts, [E, inputs, outputs]: blocks [E, outputs, inputs / 32, 16] and scales [E, outputs, inputs / 32]."""
    experts, inputs, outputs = weight.shape
    parts = weight.transpose(1, 2).reshape(experts, outputs, inputs // 32, 32)
    powers = parts.abs().amax(-1, keepdim=True).log2().floor() - 2  # of values up to 6, a little above is cut
    near = (parts.abs() / 2 ** powers)[..., None] - torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = near.abs().argmin(-1)
    codes += 8 * ((parts < 0) & (codes > 0))  # no negative zeros
    tensors = dict(_blocks=(codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8),
                   _scales=(powers[..., 0] + 127).to(torch.uint8))
    return tensors, packages["mxfp4"](tensors["_blocks"], tensors["_scales"], dtype=torch.float32)


def compressed(strategy):
    def quantise(weight, packages, generator):
        largest = weight.abs().amax(1, keepdim=True) if strategy == "channel" else weight.abs().amax().reshape(1)
        scale = (largest / 448).bfloat16()
        tensors = dict(weight=to_fp8(weight, scale.float()), weight_scale=scale)
        if strategy == "tensor":
            tensors["input_scale"] = torch.ones(1)
        args = packages["QuantizationArgs"](num_bits=8, type="float", strategy=strategy)
        return tensors, packages["dequantize"](tensors["weight"], scale.float(), args=args)
    return quantise


def scheme(strategy):
    weights = dict(num_bits=8, type="float", strategy=strategy, symmetric=True, dynamic=False)
    inputs = dict(num_bits=8, type="float", strategy="token", symmetric=True, dynamic=True)
    return dict(quant_method="compressed-tensors", format="float-quantized", quantization_status="compressed",
                ignore=["lm_head"], kv_cache_scheme=None,
                config_groups=dict(group_0=dict(targets=["Linear"], weights=weights, input_activations=inputs)))


GPTQ = dict(quant_method="gptq", bits=4, group_size=GROUP, damp_percent=0.01, true_sequential=True)

# name: family, how a matrix is quantised, "quantization_config", what the engine keeps.
MODELS = {
    "gptq": ("Qwen2", lambda *a: gptq(*a, symmetric=True, ordered=False), dict(GPTQ, sym=True, desc_act=False), "Q4_0"),
    "gptq_zeros": ("Llama", lambda *a: gptq(*a, symmetric=False, ordered=False), dict(GPTQ, sym=False, desc_act=False),
                   "Q5_0"),
    "gptq_ordered": ("Llama", lambda *a: gptq(*a, symmetric=False, ordered=True),
                     dict(GPTQ, sym=False, desc_act=True, checkpoint_format="gptq"), "F32"),
    "awq": ("Qwen2", awq, dict(quant_method="awq", bits=4, group_size=GROUP, version="gemm", zero_point=True,
                               modules_to_not_convert=None), "Q5_0"),
    "fp8_blocks": ("Qwen3", fp8_blocks, dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic",
                                             weight_block_size=[BLOCK, BLOCK]), "F32"),
    "fp8_channels": ("Llama", compressed("channel"), scheme("channel"), "F32"),
    "fp8_tensors": ("Mistral", compressed("tensor"), scheme("tensor"), "F32"),
    "mxfp4": ("GptOss", mxfp4, dict(quant_method="mxfp4", modules_to_not_convert=[
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]), "MXFP4"),
}
MORE = {"Mistral": dict(sliding_window=None), "Qwen3": dict(head_dim=16),
        "GptOss": dict(head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=20, pad_token_id=0,
                       rope_parameters=make_models.GPT_OSS_ROPE)}


def quantise_experts(model, packages, tensors):
    """Replaces the experts of gpt-oss, in the model and among the tensors; their matrices' hashes."""
    hashes = {}
    for stem, module in model.model.layers.named_modules(prefix="model.layers"):
        if not stem.endswith("experts"):
            continue
        for name in ("gate_up_proj", "down_proj"):
            parameter = getattr(module, name)
            packed, values = mxfp4(parameter.data, packages, None)
            assert values.dtype == torch.float32 and values.shape == parameter.shape
            assert float((values - parameter).abs().mean()) < 0.2 * float(parameter.abs().mean())
            parameter.copy_(values)
            tensors.pop(f"{stem}.{name}")
            tensors |= {f"{stem}.{name}{key}": value for key, value in packed.items()}
            hashes |= {f"{stem}.{expert}.{name}.weight": fnv(values[expert].T) for expert in range(len(values))}
    return hashes


def fnv(values):
    state = 0xcbf29ce484222325
    for word in values.contiguous().numpy().astype("<f4").view("<u4").ravel().tolist():
        state = (state ^ word) * 0x100000001b3 & 0xffffffffffffffff
    return f"{state:016x}"


def make(name, out, packages):
    kind, quantise, quantization, stored = MODELS[name]
    config = getattr(transformers, kind + "Config")(**(SIZES | MORE.get(kind, {})))
    for seed in range(1000):
        generator = torch.Generator().manual_seed(seed)
        model = getattr(transformers, kind + "ForCausalLM")(config)
        make_models.fill(model, generator, False)
        tensors, hashes = {}, {}
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.bfloat16())
            tensors |= {key: value.bfloat16() for key, value in model.state_dict().items()}
            if kind == "GptOss":
                hashes = quantise_experts(model, packages, tensors)
            for stem, module in model.model.layers.named_modules(prefix="model.layers"):
                if isinstance(module, torch.nn.Linear) and kind != "GptOss":
                    packed, values = quantise(module.weight.data, packages, generator)
                    assert values.dtype == torch.float32 and values.shape == module.weight.shape
                    assert float((values - module.weight).abs().mean()) < 0.2 * float(module.weight.abs().mean())
                    module.weight.copy_(values)
                    for key, value in packed.items():
                        tensors.pop(f"{stem}.{key}", None) if value is None else tensors.update({f"{stem}.{key}": value})
                    hashes[stem + ".weight"] = fnv(values)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            goldens, problem = make_models.run(pathlib.Path(folder), config.vocab_size)
        if goldens is None:
            print(f"{name}: seed {seed} dropped: {problem}")
            continue
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        text = json.loads(config.to_json_string()) | dict(architectures=[kind + "ForCausalLM"], dtype="bfloat16",
                                                          quantization_config=quantization)
        (folder / "config.json").write_text(json.dumps(text, indent=2) + "\n")
        (folder / "goldens.json").write_text(make_models.lines(goldens | dict(weights=hashes, stored=stored)))
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "model.safetensors",
                  metadata=dict(format="pt"))
        (folder / "model.safetensors").chmod(0o644)
        print(f"{name}: seed {seed}, noise {goldens['noise']:.1e}, "
              f"{sum(f.stat().st_size for f in folder.iterdir()) // 1024} KiB")
        return
    raise SystemExit(f"{name}: no seed is good")


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser()
    parser.add_argument("--autoawq", type=pathlib.Path, required=True)
    parser.add_argument("--autogptq", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=here / "quantized")
    parser.add_argument("--only")
    options = parser.parse_args()
    torch.set_num_threads(1)

    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    linears = options.autogptq / "auto_gptq" / "nn_modules" / "qlinear"
    packages = dict(awq=module_of(options.autoawq / "awq" / "utils" / "packing_utils.py", "packing_utils"),
                    gptq=module_of(linears / "qlinear_cuda_old.py", "qlinear_cuda_old"),
                    gptq_ordered=module_of(linears / "qlinear_cuda.py", "qlinear_cuda"),
                    fp8=Fp8Dequantize, mxfp4=convert_moe_packed_tensors, QuantizationArgs=QuantizationArgs, dequantize=dequantize)
    for name in MODELS:
        if options.only in (None, name):
            make(name, options.out, packages)


if __name__ == "__main__":
    sys.exit(main())
