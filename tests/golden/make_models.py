#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden checkpoints: tiny random models of every supported family, and what Transformers computes with them.

    python make_models.py [--out models] [--only NAME]

Needs torch, transformers 5 and safetensors. Runs on one core of a CPU in about a minute. The same versions on the same
machine give the same files.

What it writes:

    models/NAME/config.json, generation_config.json, model*.safetensors     a checkpoint as on the Hugging Face hub, but
                                                                            without a tokenizer: tests work on ids
    models/NAME/goldens.json    what Transformers computes with it
    models/rope.json            RoPE: [{config, inverse_frequencies, attention_factor}], frequencies in double
    models/sampler.json         filtered distributions: [{logits, seen, params, ids, probabilities}]

goldens.json:

    vocabulary   V
    noise        largest |float32 - float64| of all stored logits: what rounding does to this model
    prompts      [{ids: [int],
                   positions: [int],        whose next-token logits are stored; the last is the prompt's last
                   logits: base64,          little-endian float32 [positions, V]: float32, eager attention
                   greedy: [64 ints],       the greedy continuation; end-of-sequence tokens do not stop it
                   margin: float}]          smallest gap between the best and the second logit on the way, > 0.001

Tolerance for a float32 implementation that sums in another order: |logit - golden| <= 8 * noise. Its own error is of the
size of `noise` for the same reasons, the golden's is at most `noise`, and three bits are left for unlucky orders.
Greedy ids must be equal, because margin > 2 * 8 * noise (asserted below).
Both hold where the weights are kept exactly: in f32, or in bf16 for checkpoints whose config.json says bfloat16.
"""

import argparse
import base64
import contextlib
import copy
import json
import pathlib
import random
import shutil

import torch
import transformers
from transformers import AutoModelForCausalLM, LogitsProcessorList
from transformers.generation import logits_process

import random_families

NEW_TOKENS = 64
MIN_MARGIN = 1e-3
PROMPT_LENGTHS = (1, 7, 33, 100)  # 100: beyond every sliding window below and beyond one block of 64 keys

# Small enough to be stored, with several heads, kv heads and layers.
BASE = dict(hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=320, max_position_embeddings=512, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)

YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)
SHORT_FACTOR, LONG_FACTOR = [1.0, 1.1, 1.2, 1.4, 1.7, 2.0], [1.0, 1.3, 2.0, 4.0, 9.0, 20.0]
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, short_factor=SHORT_FACTOR,
                long_factor=LONG_FACTOR)
GPT_OSS_ROPE = dict(YARN, rope_theta=150000.0, factor=8.0, original_max_position_embeddings=64, beta_fast=32.0,
                    beta_slow=1.0, truncate=False)

# name: configuration class, its arguments, type of the stored weights, shards, and edits of the saved config.json that
# turn it into an older spelling (None removes a key).
MODELS = {
    "llama2": ("Llama", dict(num_key_value_heads=4), "bfloat16", 1,
               {"rope_parameters": None, "head_dim": None, "dtype": None, "torch_dtype": "bfloat16",
                "rope_scaling": "null", "num_key_value_heads": None}),
    "llama3": ("Llama", dict(tie_word_embeddings=True, eos_token_id=[2, 3, 319],
                             rope_parameters=dict(rope_type="llama3", rope_theta=5000.0, factor=8.0, low_freq_factor=1.0,
                                                  high_freq_factor=4.0, original_max_position_embeddings=64)),
               "bfloat16", 1,
               {"rope_parameters": None, "rope_theta": 5000.0,
                "rope_scaling": dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=64)}),
    "llama_linear": ("Llama", dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=3,
                                   intermediate_size=80, vocab_size=300,
                                   rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
                     "float32", 1,
                     {"rope_parameters": None, "rope_theta": 10000.0, "rope_scaling": dict(type="linear", factor=4.0)}),
    "llama_yarn": ("Llama", dict(attention_bias=True, mlp_bias=True,
                                 rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=8.0,
                                                      original_max_position_embeddings=64)), "bfloat16", 1, {}),
    "qwen2": ("Qwen2", dict(tie_word_embeddings=True, rms_norm_eps=1e-6), "bfloat16", 1,
              {"rope_parameters": None, "rope_theta": 10000.0, "layer_types": None}),
    "qwen2_window": ("Qwen2", dict(use_sliding_window=True, sliding_window=12, max_window_layers=1), "float16", 1, {}),
    "qwen3": ("Qwen3", dict(head_dim=24, num_hidden_layers=3), "bfloat16", 1, {}),
    "mistral": ("Mistral", dict(sliding_window=16, num_hidden_layers=3), "bfloat16", 3, {}),
    "smollm": ("Llama", dict(hidden_size=72, num_attention_heads=9, num_key_value_heads=3, intermediate_size=104,
                             tie_word_embeddings=True), "bfloat16", 1, {}),
    "gemma3": ("Gemma3", dict(head_dim=24, num_key_value_heads=1, num_hidden_layers=4, sliding_window=20, pad_token_id=0,
                              query_pre_attn_scalar=32, final_logit_softcapping=8.0, tie_word_embeddings=False, sliding_window_pattern=2,
                              rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                                   sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
               "bfloat16", 1,
               {"rope_parameters": None, "layer_types": None, "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
                "rope_scaling": dict(rope_type="linear", factor=8.0), "sliding_window_pattern": 2}),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=4, no_rope_layers=[1, 0, 1, 1], tie_word_embeddings=True, pad_token_id=0),
                "bfloat16", 1, {"rope_parameters": None, "rope_theta": 2000000.0}),
    "mixtral": ("Mixtral", dict(intermediate_size=48, num_local_experts=6, num_experts_per_tok=2, sliding_window=None),
                "bfloat16", 1, {"rope_parameters": None, "rope_theta": 10000.0}),
    "qwen3_moe": ("Qwen3Moe", dict(head_dim=24, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=40,
                                   norm_topk_prob=True, mlp_only_layers=[1]), "bfloat16", 1, {}),
    "phi3": ("Phi3", dict(sliding_window=40, num_key_value_heads=4, pad_token_id=0), "bfloat16", 1, {}),
    # Phi-4-mini: heads rotated in part, LongRoPE. Transformers takes the list of divisors by the length of a sequence,
    # the engine by the context: here all lengths of a model take the same one (the angle at position 0 is 0 in both).
    "phi4_short": ("Phi3", dict(pad_token_id=0, tie_word_embeddings=True, original_max_position_embeddings=512,
                                rope_parameters=dict(LONGROPE, original_max_position_embeddings=512)),
                   "bfloat16", 1,
                   {"rope_parameters": None, "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                    "rope_scaling": dict(type="longrope", short_factor=SHORT_FACTOR, long_factor=LONG_FACTOR)}),
    "phi4_long": ("Phi3", dict(pad_token_id=0, original_max_position_embeddings=1,
                               rope_parameters=dict(LONGROPE, original_max_position_embeddings=1, attention_factor=1.2)),
                  "bfloat16", 1, {}),
    "granite": ("Granite", dict(embedding_multiplier=2.5, residual_multiplier=0.7, attention_multiplier=0.15,
                                logits_scaling=2.0), "bfloat16", 1,
                {"rope_parameters": None, "rope_theta": 10000.0}),
    "olmo3": ("Olmo3", dict(num_hidden_layers=4, sliding_window=20, pad_token_id=0,
                            rope_parameters=dict(full_attention=dict(YARN, rope_theta=500000.0,
                                                                     original_max_position_embeddings=128),
                                                 sliding_attention=dict(rope_type="default", rope_theta=500000.0))),
              "bfloat16", 1,
              {"rope_parameters": None, "rope_theta": 500000.0,
               "rope_scaling": dict(YARN, original_max_position_embeddings=128)}),
    "exaone4": ("Exaone4", dict(num_hidden_layers=4, sliding_window=20, sliding_window_pattern=4), "bfloat16", 1,
                {"sliding_window_pattern": "LLLG"}),
    "exaone4_full": ("Exaone4", dict(sliding_window=None, layer_types=["full_attention"] * 3),
                     "bfloat16", 1, {}),
    "glm4": ("Glm4", dict(head_dim=24, pad_token_id=0), "bfloat16", 1, {}),
    "ministral3": ("Ministral3", dict(head_dim=24, pad_token_id=0, rope_parameters=dict(
        YARN, rope_theta=10000.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0,
        llama_4_scaling_beta=0.3)), "bfloat16", 1, {}),
    "qwen2_moe": ("Qwen2Moe", dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=40,
                                   shared_expert_intermediate_size=56), "bfloat16", 1, {}),
    "gpt_oss": ("GptOss", dict(head_dim=16, num_hidden_layers=4, intermediate_size=40, num_local_experts=5,
                               num_experts_per_tok=3, sliding_window=20, pad_token_id=0, swiglu_limit=2.5,
                               rope_parameters=GPT_OSS_ROPE),
                "bfloat16", 1,
                {"rope_parameters": None, "layer_types": None, "rope_theta": 150000.0,
                 "rope_scaling": {key: value for key, value in GPT_OSS_ROPE.items() if key != "rope_theta"}}),
    # Everything that one of the sizes has: layers 3 and 4 read the KV of layers 2 and 1.
    "gemma4": ("Gemma4", dict(head_dim=16, global_head_dim=32, num_global_key_value_heads=1, num_hidden_layers=5,
                              intermediate_size=40, sliding_window=20, pad_token_id=0, final_logit_softcapping=8.0,
                              tie_word_embeddings=False, layer_types=["sliding_attention", "full_attention",
                                                                      "sliding_attention", "sliding_attention",
                                                                      "full_attention"],
                              num_kv_shared_layers=2, use_double_wide_mlp=True, attention_k_eq_v=True,
                              hidden_size_per_layer_input=16, vocab_size_per_layer_input=320, enable_moe_block=True,
                              num_experts=4, top_k_experts=2, moe_intermediate_size=16),
               "bfloat16", 1,
               {"per_layer_config": None, "global_head_dim": 32, "num_global_key_value_heads": 1}),
}

# Families of random_families.py, each with the smallest of some drawn configurations, as published (see SPELLED) or as
# Transformers writes it.
DRAWN = ("lfm2", "lfm2_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next", "granite_hybrid", "granite_hybrid_moe",
         "falcon_h1_folder", "nemotron_h", "nemotron_h_moe", "hunyuan_dense", "gemma3n")
SPELLED = ("lfm2_moe", "qwen3_5", "qwen3_next", "granite_hybrid_moe", "falcon_h1_folder")
DRAWS = 60

# Where the configuration class is not named after the model class.
CONFIGS = {"Gemma3": "Gemma3TextConfig", "Gemma4": "Gemma4TextConfig"}

# Families whose norms multiply by 1 + weight.
FROM_ONE = ("Gemma3",)
SCALED = ("Gemma3", "Gemma4")  # embeddings are multiplied by the root of the width

# Additions to generation_config.json: what Qwen's instruct models say.
GENERATION = {"qwen2": dict(do_sample=True, temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.05,
                            eos_token_id=[2, 319])}


@contextlib.contextmanager
def in_double():
    """Transformers names float32 in the norm, the softmax and RoPE: let that mean float64 meanwhile."""
    saved = {name: getattr(torch, name) for name in ("float32", "float")}
    to_float = torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.Tensor.float = to_float
        for name, value in saved.items():
            setattr(torch, name, value)


def fill(model, generator, kind):
    """Random weights large enough for confident logits and attention that is far from uniform."""
    factors = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith("layer_scalar")]
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *factors]:
            noise = torch.randn(parameter.shape, generator=generator)
            if kind == "Gemma4" and name.endswith(("q_norm.weight", "k_norm.weight")):  # scores have no other scale
                parameter.copy_(0.5 + 0.1 * noise)
            elif "norm" in name:
                parameter.copy_((0.0 if kind in FROM_ONE else 1.0) + 0.2 * noise)
            elif name.endswith(("scale", "layer_scalar")):
                parameter.copy_(1.0 + 0.2 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.3 * noise)
            elif "embed_tokens" in name or "lm_head" in name:
                parameter.copy_((0.1 if kind in SCALED and "embed" in name else 0.4) * noise)
            else:  # the experts of gpt-oss are [experts, inputs, outputs], all other matrices [.., outputs, inputs]
                inputs = -2 if parameter.dim() == 3 and model.config.model_type == "gpt_oss" else -1
                parameter.copy_(noise * 1.3 / parameter.shape[inputs] ** 0.5)


def save(model, folder, dtype, shards, edits):
    shutil.rmtree(folder, ignore_errors=True)
    model = model.to(getattr(torch, dtype))
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size="100MB" if shards == 1 else f"{size // 1000 // (shards - 1)}KB")
    found = len(list(folder.glob("*.safetensors")))
    assert found == shards, f"{folder.name}: {found} shards instead of {shards}"

    config = json.loads((folder / "config.json").read_text())
    for key, value in edits.items():
        if value is None:
            config.pop(key, None)
        else:
            config[key] = None if value == "null" else value
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    generation = json.loads((folder / "generation_config.json").read_text()) | GENERATION.get(folder.name, {})
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def greedy(model, ids):
    """(ids of the continuation, smallest margin on the way)"""
    ids, out, margin = list(ids), [], float("inf")
    for _ in range(NEW_TOKENS):
        best = torch.topk(logits_of(model, ids)[-1], 2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        out.append(int(best.indices[0]))
        ids.append(out[-1])
    return out, margin


def run(folder, vocabulary):
    """The goldens of a saved checkpoint, or why its weights are no good."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    double = copy.deepcopy(model).double()
    with in_double():
        for name, module in list(double.named_modules()):
            if type(module).__name__.endswith("RotaryEmbedding"):
                double.set_submodule(name, type(module)(model.config))

    generator = torch.Generator().manual_seed(7)
    prompts, noise = [], 0.0
    for length in PROMPT_LENGTHS:
        ids = torch.randint(3, vocabulary, (length,), generator=generator).tolist()
        positions = sorted({length // 2, length - 1})
        logits = logits_of(model, ids)[positions]
        with in_double():
            exact = logits_of(double, ids)[positions]
        assert exact.dtype == torch.float64
        noise = max(noise, float((logits.double() - exact).abs().max()))
        out, margin = greedy(model, ids)
        if margin <= MIN_MARGIN:
            return None, f"margin {margin:.1e}"
        if len(set(out)) < NEW_TOKENS // 4:  # a loop would hide errors
            return None, f"only {len(set(out))} different tokens in a greedy run"
        prompts.append(dict(ids=ids, positions=positions, margin=margin, greedy=out,
                            logits=base64.b64encode(logits.numpy().astype("<f4").tobytes()).decode()))
    assert min(p["margin"] for p in prompts) > 16 * noise, "greedy ids are not determined"
    return dict(vocabulary=vocabulary, noise=noise, prompts=prompts), ""


def smallest(name):
    """(model class, configuration) of the drawn configuration with the fewest weights."""
    best = None
    for seed in range(DRAWS):
        kind, config_kind, arguments = random_families.DRAWN[name](random.Random(f"{name} {seed}"))
        config = getattr(transformers, config_kind)(**arguments)
        with torch.device("meta"):
            weights = sum(p.numel() for p in getattr(transformers, kind)(config).parameters())
        if best is None or weights < best[0]:
            best = weights, kind, config
    return best[1:]


def save_drawn(name, kind, config, seed, folder):
    model = getattr(transformers, kind)(config).float()
    random_families.fill(model, seed)
    save(model, folder, "bfloat16", 1, {})
    if name in SPELLED:
        random_families.spell_as_published(folder, config, seed)


def make_model(name, out):
    folder = out / name
    if name in DRAWN:
        model_kind, config = smallest(name)
    else:
        kind, arguments, dtype, shards, edits = MODELS[name]
        config = getattr(transformers, CONFIGS.get(kind, kind + "Config"))(**(BASE | arguments))
    for seed in range(1000):
        if name in DRAWN:
            save_drawn(name, model_kind, config, seed, folder)
        else:
            model = getattr(transformers, kind + "ForCausalLM")(config)
            fill(model, torch.Generator().manual_seed(seed), kind)
            save(model, folder, dtype, shards, edits)
        goldens, problem = run(folder, config.vocab_size)
        if goldens is not None:
            (folder / "goldens.json").write_text(lines(goldens))
            size = sum(f.stat().st_size for f in folder.iterdir())
            print(f"{name}: seed {seed}, noise {goldens['noise']:.1e}, "
                  f"margin {min(p['margin'] for p in goldens['prompts']):.4f}, {size // 1024} KiB")
            return
        print(f"{name}: seed {seed} dropped: {problem}")
    raise SystemExit(f"{name}: no seed is good")


def lines(value):
    """JSON with one line per field, and lists of numbers on one line."""
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{json.dumps(k)}: {lines(v)}" for k, v in value.items()) + "\n}"
    if isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value):
        return "[\n" + ",\n".join(lines(v) for v in value) + "\n]"
    return json.dumps(value)


# --- RoPE ------------------------------------------------------------------------------------------------------------

SMALL = dict(vocab_size=32, intermediate_size=32, num_hidden_layers=1)
LLAMA31 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=8192)


def rope_config(kind, width, heads, context, **more):
    return dict(architectures=[kind + "ForCausalLM"], hidden_size=width, num_attention_heads=heads,
                num_key_value_heads=heads, max_position_embeddings=context, **SMALL, **more)


ROPE = [
    rope_config("Llama", 4096, 32, 4096),
    rope_config("Llama", 4096, 32, 131072, rope_theta=500000.0, rope_scaling=LLAMA31),
    rope_config("Llama", 2048, 32, 131072, rope_theta=500000.0, rope_scaling=dict(LLAMA31, factor=32.0)),
    rope_config("Llama", 4096, 32, 16384, rope_theta=10000.0, rope_scaling=dict(type="linear", factor=4.0)),
    rope_config("Llama", 576, 9, 2048, rope_parameters=dict(rope_type="default", rope_theta=100000.0)),
    rope_config("Mistral", 4096, 32, 32768, rope_theta=1e6, sliding_window=None),
    rope_config("Qwen2", 3584, 28, 32768, rope_theta=1000000.0),
    rope_config("Qwen2", 3584, 28, 131072, rope_theta=1000000.0, rope_scaling=dict(YARN, type="yarn")),
    rope_config("Qwen3", 1024, 16, 40960, head_dim=128, rope_parameters=dict(YARN, rope_theta=1000000.0)),
    rope_config("Qwen3", 1024, 16, 40960, head_dim=128, rope_parameters=dict(YARN, rope_theta=1e6, factor=None)),
    rope_config("Llama", 4096, 32, 131072, rope_parameters=dict(YARN, rope_theta=10000.0, mscale=1.0,
                                                                 mscale_all_dim=0.5, original_max_position_embeddings=4096)),
    rope_config("Llama", 4096, 32, 65536, rope_parameters=dict(YARN, rope_theta=10000.0, attention_factor=1.25,
                                                                beta_fast=16.0, beta_slow=2.0, truncate=False)),
    rope_config("Llama", 4096, 32, 65536, rope_theta=10000.0, original_max_position_embeddings=2048,
                rope_scaling=dict(YARN)),
    rope_config("Llama", 64, 8, 512, rope_theta=10000.0, rope_scaling=dict(rope_type="yarn", factor=4.0)),
]


def make_rope(out):
    goldens = []
    for config in ROPE:
        kind = config["architectures"][0].removesuffix("ForCausalLM")
        settings = getattr(transformers, kind + "Config")(**json.loads(json.dumps(config)))
        module = getattr(getattr(transformers.models, kind.lower()), f"modeling_{kind.lower()}")
        with in_double():
            rope = getattr(module, kind + "RotaryEmbedding")(settings)
        assert rope.inv_freq.dtype == torch.float64
        single = getattr(module, kind + "RotaryEmbedding")(settings).inv_freq.double()
        assert float(((single - rope.inv_freq) / rope.inv_freq).abs().max()) < 2e-6, "the two precisions disagree"
        goldens.append(dict(config=config, inverse_frequencies=rope.inv_freq.tolist(),
                            attention_factor=float(rope.attention_scaling)))
    (out / "rope.json").write_text(
        "[\n" + ",\n".join(json.dumps(golden) for golden in goldens) + "\n]\n")
    print(f"rope.json: {len(goldens)} configurations")


# --- Sampler ---------------------------------------------------------------------------------------------------------

SAMPLER = [
    dict(temperature=1.0),
    dict(temperature=0.7),
    dict(temperature=1.0, top_k=5),
    dict(temperature=1.3, top_k=1),
    dict(temperature=1.0, top_k=1000),
    dict(temperature=1.0, top_p=0.9),
    dict(temperature=0.8, top_p=0.5),
    dict(temperature=1.0, top_p=0.01),
    dict(temperature=1.0, min_p=0.1),
    dict(temperature=2.0, min_p=1.0),
    dict(temperature=0.9, top_k=12, top_p=0.8),
    dict(temperature=1.1, top_k=20, top_p=0.95, min_p=0.05),
    dict(temperature=1.0, repetition_penalty=1.3),
    dict(temperature=1.0, repetition_penalty=0.8, top_k=8),
    dict(temperature=0.6, top_k=20, top_p=0.95, min_p=0.02, repetition_penalty=1.1),
]


def warp(logits, seen, params):
    """Transformers' processors in the order in which generate() applies them."""
    chain = LogitsProcessorList()
    if params.get("repetition_penalty", 1.0) != 1.0:
        chain.append(logits_process.RepetitionPenaltyLogitsProcessor(params["repetition_penalty"]))
    chain.append(logits_process.TemperatureLogitsWarper(params["temperature"]))
    if "top_k" in params:
        chain.append(logits_process.TopKLogitsWarper(params["top_k"]))
    if "top_p" in params:
        chain.append(logits_process.TopPLogitsWarper(params["top_p"]))
    if "min_p" in params:
        chain.append(logits_process.MinPLogitsWarper(params["min_p"]))
    return chain(torch.tensor([seen]), logits[None].clone())[0].softmax(-1)


def make_sampler(out):
    generator = torch.Generator().manual_seed(11)
    goldens = []
    for vocabulary in (40, 700):
        for index, params in enumerate(SAMPLER):
            logits = 2.0 * torch.randn(vocabulary, generator=generator)
            if index % 3 == 1:  # ties, also for the k-th place
                logits = (logits * 2).round() / 2
                if "top_p" in params:  # which of equals the cut of top-p takes is left open by Transformers
                    logits += 0.01 * torch.arange(vocabulary) / vocabulary
            seen = torch.randint(0, vocabulary, (10,), generator=generator).tolist()
            probabilities = warp(logits, seen, params)
            ids = probabilities.nonzero()[:, 0]
            goldens.append(dict(logits=base64.b64encode(logits.numpy().astype("<f4").tobytes()).decode(), seen=seen,
                                params=params, ids=ids.tolist(),
                                probabilities=[round(float(p), 9) for p in probabilities[ids]]))
    (out / "sampler.json").write_text("[\n" + ",\n".join(json.dumps(golden) for golden in goldens) + "\n]\n")
    print(f"sampler.json: {len(goldens)} cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "models")
    parser.add_argument("--only", choices=[*MODELS, *DRAWN, "rope", "sampler"], help="make this one alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in (*MODELS, *DRAWN):
        if arguments.only in (None, name):
            make_model(name, arguments.out)
    if arguments.only in (None, "rope"):
        make_rope(arguments.out)
    if arguments.only in (None, "sampler"):
        make_sampler(arguments.out)


if __name__ == "__main__":
    main()
