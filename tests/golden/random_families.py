# SPDX-License-Identifier: Apache-2.0
"""Random tiny configurations of model families whose layers differ, for check_families.py.

DRAWN[name](draw) gives the model class, the configuration class and its arguments; `draw` is a random.Random. Sizes,
heads, layers, windows, layer patterns and vocabularies are drawn; what the published checkpoints switch on stays on.
fill() fills a model with random weights, and spell_as_published() turns a folder that Transformers 5 wrote into the
form of the published checkpoints.
"""

import json

import safetensors.torch
import torch

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"

# Norms of these classes multiply by 1 + weight.
ONE_PLUS = ("Qwen3NextRMSNorm", "Qwen3_5RMSNorm", "Qwen3_5MoeRMSNorm")


def heads_of(draw, counts=(2, 4, 6)):
    """Query heads, and key and value heads that divide them."""
    heads = draw.choice(counts)
    return heads, draw.choice([kv for kv in (1, 2, 3) if heads % kv == 0])


def common(draw, sizes=range(330, 421)):
    return dict(vocab_size=draw.choice(sizes), bos_token_id=1, eos_token_id=2, pad_token_id=0,
                max_position_embeddings=2048)


def common_gemma(draw):
    return common(draw) | dict(bos_token_id=2, eos_token_id=1, rms_norm_eps=1e-6, final_logit_softcapping=30.0,
                               tie_word_embeddings=True)


# llama.cpp's converter rounds the vocabulary of Mamba's kin up to a multiple of 8 or 16, but not their embeddings.
PADDED = range(336, 401, 16)


def mixed(draw, count, kinds):
    """`count` layers of random kinds, each kind at least once."""
    while True:
        types = [draw.choice(kinds) for _ in range(count)]
        if set(types) == set(kinds):
            return types


def default_rope(theta, **more):
    return dict(rope_type="default", rope_theta=theta, **more)


# --- LFM2 ------------------------------------------------------------------------------------------------------------


def lfm2_sizes(draw):
    heads, kv = heads_of(draw)
    layers = draw.randint(4, 7)
    return dict(common(draw), hidden_size=heads * draw.choice([16, 24, 32]), num_hidden_layers=layers,
                intermediate_size=draw.choice([120, 168, 210]), num_attention_heads=heads, num_key_value_heads=kv,
                norm_eps=1e-5, rope_parameters=default_rope(1e6), conv_bias=False, conv_L_cache=draw.choice([3, 3, 4]),
                tie_word_embeddings=True, layer_types=mixed(draw, layers, ["conv", FULL]))


def lfm2(draw):
    return "Lfm2ForCausalLM", "Lfm2Config", dict(
        lfm2_sizes(draw), block_multiple_of=draw.choice([8, 16, 32]), block_auto_adjust_ff_dim=draw.random() < 0.7,
        block_ffn_dim_multiplier=draw.choice([1.0, 1.0, 1.3]))


def lfm2_moe(draw):
    return "Lfm2MoeForCausalLM", "Lfm2MoeConfig", dict(
        lfm2_sizes(draw), moe_intermediate_size=draw.choice([24, 40, 56]), num_dense_layers=draw.choice([1, 2]),
        num_experts=draw.choice([4, 6, 9]), num_experts_per_tok=draw.choice([2, 3, 4]), use_expert_bias=True,
        routed_scaling_factor=1.0, norm_topk_prob=True)


# --- Gated delta net -------------------------------------------------------------------------------------------------


def delta_net_sizes(draw):
    heads, kv = heads_of(draw)
    layers, interval = draw.choice([4, 5, 7, 8]), draw.choice([2, 3, 4, 4])
    key_heads, width = draw.choice([1, 2, 3]), draw.choice([16, 32])
    return dict(common(draw), hidden_size=draw.choice([48, 64, 96]), num_hidden_layers=layers, rms_norm_eps=1e-6,
                num_attention_heads=heads, num_key_value_heads=kv, head_dim=draw.choice([32, 48, 64]),
                linear_num_key_heads=key_heads, linear_num_value_heads=key_heads * draw.choice([1, 2, 3]),
                linear_key_head_dim=width, linear_value_head_dim=width, linear_conv_kernel_dim=4,
                full_attention_interval=interval,
                layer_types=[LINEAR if (i + 1) % interval else FULL for i in range(layers)],
                rope_parameters=default_rope(1e7, partial_rotary_factor=0.25))


def qwen3_5_sizes(draw):
    sizes = delta_net_sizes(draw)
    pairs = sizes["head_dim"] // 8
    sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    sizes["rope_parameters"] |= dict(mrope_section=sections, mrope_interleaved=True)
    return dict(sizes, attn_output_gate=True)


def shared_and_routed(draw):
    return dict(num_experts=draw.choice([6, 8, 9]), num_experts_per_tok=draw.choice([2, 3, 4]),
                moe_intermediate_size=draw.choice([24, 40, 56]), shared_expert_intermediate_size=draw.choice([32, 48]),
                tie_word_embeddings=False)


def qwen3_5(draw):
    return "Qwen3_5ForCausalLM", "Qwen3_5TextConfig", dict(
        qwen3_5_sizes(draw), intermediate_size=draw.choice([72, 112, 160]), tie_word_embeddings=draw.random() < 0.5)


def qwen3_5_moe(draw):
    return "Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", qwen3_5_sizes(draw) | shared_and_routed(draw)


def qwen3_next(draw):
    return "Qwen3NextForCausalLM", "Qwen3NextConfig", dict(
        delta_net_sizes(draw) | shared_and_routed(draw), intermediate_size=draw.choice([72, 112]), norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[])


# --- gpt-oss ---------------------------------------------------------------------------------------------------------


def gpt_oss(draw):
    heads, kv = heads_of(draw, (2, 4, 6, 8))
    layers = draw.randint(3, 6)
    factor, original = draw.choice([(32.0, 64), (32.0, 4096), (8.0, 128)])
    rope = dict(rope_type="yarn", rope_theta=150000.0, factor=factor, beta_fast=32.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=original)
    return "GptOssForCausalLM", "GptOssConfig", dict(
        common(draw), hidden_size=draw.choice([64, 96]), intermediate_size=draw.choice([64, 96]), rms_norm_eps=1e-5,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv,
        head_dim=draw.choice([16, 24, 32]), num_local_experts=draw.choice([4, 6, 9]),
        num_experts_per_tok=draw.choice([2, 3, 4]), sliding_window=draw.choice([7, 20, 64, 130]),
        layer_types=[FULL if i % 2 else SLIDING for i in range(layers)], swiglu_limit=draw.choice([2.5, 7.0]),
        attention_bias=True, tie_word_embeddings=False, max_position_embeddings=int(factor * original),
        rope_parameters=rope)


def gpt_oss_rounded(draw):
    """With YaRN's bounds rounded to whole dimensions: llama.cpp rounds them whatever a checkpoint says."""
    kind, config, sizes = gpt_oss(draw)
    return kind, config, dict(sizes, rope_parameters=dict(sizes["rope_parameters"], truncate=True))


# --- Gemma -----------------------------------------------------------------------------------------------------------


def gemma_layers(draw, shared):
    """Layer types, of which the last `shared` take the KV of layers before. llama.cpp takes it for granted that those
    end with a sliding and a full one, as published; Transformers does not."""
    usual = draw.random() < 0.9
    while True:
        types = [draw.choice([SLIDING, SLIDING, FULL]) for _ in range(draw.randint(5, 8) - 1)] + [FULL]
        own = types[:len(types) - shared]
        if set(own) == {SLIDING, FULL} and (not shared or not usual or own[-2:] == [SLIDING, FULL]):
            return types


def gemma4_sizes(draw, shared):
    heads, kv = heads_of(draw, (2, 4))
    types, head_dim = gemma_layers(draw, shared), draw.choice([16, 24, 32])
    proportional = dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1e6)
    return dict(common_gemma(draw), hidden_size=draw.choice([48, 64, 96]), num_hidden_layers=len(types),
                intermediate_size=draw.choice([72, 112, 160]), num_attention_heads=heads, num_key_value_heads=kv,
                head_dim=head_dim, global_head_dim=2 * head_dim, sliding_window=draw.choice([8, 20, 64, 130]),
                layer_types=types, num_kv_shared_layers=shared,
                rope_parameters=dict(sliding_attention=default_rope(1e4), full_attention=proportional))


def gemma4(draw):
    """E2B and E4B: per-layer embeddings, shared KV, MLPs twice as wide in the layers that share."""
    sizes = gemma4_sizes(draw, draw.choice([1, 2]))
    return "Gemma4ForCausalLM", "Gemma4TextConfig", dict(
        sizes, hidden_size_per_layer_input=draw.choice([16, 24]), vocab_size_per_layer_input=sizes["vocab_size"],
        use_double_wide_mlp=draw.random() < 0.5)


def gemma4_dense(draw):
    """31B: values are the keys in full layers, which have their own number of kv heads; no per-layer embeddings."""
    sizes = gemma4_sizes(draw, 0)
    return "Gemma4ForCausalLM", "Gemma4TextConfig", dict(
        sizes, hidden_size_per_layer_input=0, vocab_size_per_layer_input=sizes["vocab_size"], attention_k_eq_v=True,
        num_global_key_value_heads=draw.choice([1, 2]))


def gemma4_moe(draw):
    """26B-A4B: experts beside the MLP."""
    kind, config, sizes = gemma4_dense(draw)
    return kind, config, dict(sizes, enable_moe_block=True, num_experts=draw.choice([4, 6, 8]),
                              top_k_experts=draw.choice([2, 3]), moe_intermediate_size=draw.choice([24, 40, 56]))


def gemma3n(draw):
    shared = draw.choice([1, 2, 3])
    types = gemma_layers(draw, shared)
    sizes = common_gemma(draw)
    sparse = draw.randint(1, len(types) - 1)
    return "Gemma3nForCausalLM", "Gemma3nTextConfig", dict(
        sizes, hidden_size=draw.choice([48, 64, 96]), intermediate_size=draw.choice([72, 112, 160]),
        num_hidden_layers=len(types), num_attention_heads=draw.choice([2, 4]), layer_types=types,
        num_key_value_heads=draw.choice([1, 2]), head_dim=draw.choice([16, 32]),
        sliding_window=draw.choice([8, 20, 64, 130]), num_kv_shared_layers=shared,
        hidden_size_per_layer_input=draw.choice([16, 24]), vocab_size_per_layer_input=sizes["vocab_size"],
        altup_num_inputs=4, altup_active_idx=0, altup_correct_scale=True, laurel_rank=draw.choice([8, 12]),
        activation_sparsity_pattern=[draw.choice([0.95, 0.9, 0.6]) if i < sparse else 0.0 for i in range(len(types))],
        rope_parameters=dict(sliding_attention=default_rope(1e4), full_attention=default_rope(1e6)))


def gemma3n_e2b(draw):
    """With what llama.cpp has in its code: own KV in 20 layers, ten sparse layers, each fifth one full, 256 values of
    per-layer embeddings, rank 64 of LAuReL. It divides the variance in sparse layers by one less than their width."""
    kind, config, sizes = gemma3n(draw)
    layers = draw.choice([22, 25])
    return kind, config, dict(
        sizes, num_hidden_layers=layers, intermediate_size=1024, num_kv_shared_layers=layers - 20,
        hidden_size_per_layer_input=256, laurel_rank=64,
        layer_types=[FULL if i % 5 == 4 else SLIDING for i in range(layers)],
        activation_sparsity_pattern=[0.95] * 10 + [0.0] * (layers - 10))


# --- Mamba 2 ---------------------------------------------------------------------------------------------------------


def granite_sizes(draw):
    heads, kv = heads_of(draw)
    hidden, mamba_heads = heads * draw.choice([16, 24, 32]), draw.choice([2, 4, 8])
    layers, width = draw.randint(4, 7), draw.choice([72, 112])
    return dict(common(draw, PADDED), hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv,
                num_hidden_layers=layers, rms_norm_eps=1e-5, embedding_multiplier=draw.choice([1.5, 3.0]),
                logits_scaling=draw.choice([1.5, 3.0]), residual_multiplier=draw.choice([0.22, 0.7]),
                attention_multiplier=draw.choice([0.0625, 0.15, 0.3]), mamba_n_heads=mamba_heads,
                mamba_d_head=2 * hidden // mamba_heads, mamba_n_groups=1, mamba_d_state=draw.choice([16, 32]),
                mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=draw.choice([16, 64, 256]), mamba_conv_bias=True,
                mamba_proj_bias=False, attention_bias=False, tie_word_embeddings=True, num_local_experts=0,
                num_experts_per_tok=0, shared_intermediate_size=width, intermediate_size=width,
                position_embedding_type="nope", layer_types=mixed(draw, layers, ["mamba", "attention"]))


def granite_hybrid(draw):
    """Granite 4.0 H 350M and 1B: Mamba, and attention without positions."""
    return "GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", granite_sizes(draw)


def granite_hybrid_moe(draw):
    """Granite 4.0 H Tiny and Small: experts and a shared one."""
    return "GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", dict(
        granite_sizes(draw), num_local_experts=draw.choice([4, 6, 9]), num_experts_per_tok=draw.choice([2, 3]),
        intermediate_size=draw.choice([32, 48]))


def granite_hybrid_rope(draw):
    """Granite 4.0 350M, 1B and Micro: attention alone, with RoPE, in the hybrid's class."""
    sizes = granite_sizes(draw)
    return "GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", dict(
        sizes, position_embedding_type="rope", rope_parameters=default_rope(1e7),
        layer_types=["attention"] * sizes["num_hidden_layers"])


def falcon_h1(draw):
    heads, kv = heads_of(draw)
    groups, width = draw.choice([1, 1, 2]), draw.choice([16, 32])
    mamba_heads = groups * draw.choice([2, 3, 4])

    def multipliers(count):
        return [round(draw.uniform(0.4, 1.6), 3) for _ in range(count)]

    alone = ("lm_head_multiplier", "embedding_multiplier", "key_multiplier", "attention_in_multiplier",
             "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier")
    return "FalconH1ForCausalLM", "FalconH1Config", dict(
        common(draw, PADDED), hidden_size=draw.choice([48, 64, 96]), intermediate_size=draw.choice([72, 112]),
        num_hidden_layers=draw.randint(2, 4), num_attention_heads=heads, num_key_value_heads=kv,
        head_dim=draw.choice([16, 24, 32]), rms_norm_eps=1e-5, mamba_d_ssm=mamba_heads * width, mamba_d_head=width,
        mamba_n_heads=mamba_heads, mamba_n_groups=groups, mamba_d_state=draw.choice([16, 32]), mamba_d_conv=4,
        mamba_chunk_size=draw.choice([16, 64, 256]), mamba_conv_bias=True, mamba_proj_bias=False,
        mamba_rms_norm=draw.random() < 0.5, mamba_norm_before_gate=False, rope_parameters=default_rope(1e11),
        mlp_multipliers=multipliers(2), ssm_multipliers=multipliers(5), tie_word_embeddings=False,
        **dict(zip(alone, multipliers(len(alone)))))


def falcon_h1_folder(draw):
    """What a GGUF file cannot say: the norm before the gate, and multipliers of a matrix that is tied."""
    kind, config, sizes = falcon_h1(draw)
    return kind, config, dict(sizes, mamba_norm_before_gate=True, tie_word_embeddings=draw.random() < 0.5)


def nemotron_sizes(draw, kinds):
    heads, kv = heads_of(draw)
    groups = draw.choice([1, 2])
    return dict(common(draw, PADDED), hidden_size=draw.choice([48, 64, 96]), num_attention_heads=heads,
                layers_block_type=mixed(draw, draw.randint(5, 9), kinds), num_key_value_heads=kv,
                head_dim=draw.choice([16, 24, 32]), intermediate_size=draw.choice([72, 112]), mlp_hidden_act="relu2",
                ssm_state_size=draw.choice([16, 32]), mamba_num_heads=groups * draw.choice([4, 8]),
                mamba_head_dim=draw.choice([16, 32]), n_groups=groups, conv_kernel=4, use_conv_bias=True,
                chunk_size=draw.choice([16, 64, 128]), layer_norm_epsilon=1e-5, tie_word_embeddings=False,
                # Transformers keeps steps from falling below this in prompts, but not behind them; others never do.
                time_step_min=1e-9)


def nemotron_h(draw):
    return "NemotronHForCausalLM", "NemotronHConfig", nemotron_sizes(draw, [LINEAR, FULL, "mlp"])


def nemotron_h_moe(draw):
    """Nemotron 3: experts chosen by sigmoids with a bias, a shared one, in the larger ones a latent width."""
    return "NemotronHForCausalLM", "NemotronHConfig", dict(
        nemotron_sizes(draw, [LINEAR, FULL, "moe"]), n_routed_experts=draw.choice([4, 6, 8]), n_shared_experts=1,
        moe_intermediate_size=draw.choice([24, 40]), num_experts_per_tok=draw.choice([2, 3]),
        moe_shared_expert_intermediate_size=draw.choice([32, 48]), moe_latent_size=draw.choice([None, 32]),
        routed_scaling_factor=2.5, n_group=1, topk_group=1, norm_topk_prob=True)


# --- Hunyuan ---------------------------------------------------------------------------------------------------------


def hunyuan_dense(draw):
    heads, kv = heads_of(draw)
    rope = dict(rope_type="dynamic", rope_theta=10000.0, alpha=draw.choice([50.0, 1000.0]), factor=1.0, beta_fast=32,
                beta_slow=1, mscale=1.0, mscale_all_dim=1.0)
    return "HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Config", dict(
        common(draw) | dict(max_position_embeddings=32768), hidden_size=draw.choice([48, 64, 96]),
        intermediate_size=draw.choice([72, 112, 160]), num_hidden_layers=draw.randint(2, 5), num_attention_heads=heads,
        num_key_value_heads=kv, head_dim=draw.choice([16, 24, 32]), rms_norm_eps=1e-5, use_qk_norm=True,
        tie_word_embeddings=draw.random() < 0.5, rope_parameters=rope)


DRAWN = {
    "lfm2": lfm2, "lfm2_moe": lfm2_moe, "qwen3_5": qwen3_5, "qwen3_5_moe": qwen3_5_moe, "qwen3_next": qwen3_next,
    "gpt_oss": gpt_oss, "gpt_oss_rounded": gpt_oss_rounded, "gemma4": gemma4, "gemma4_dense": gemma4_dense,
    "gemma4_moe": gemma4_moe, "gemma3n": gemma3n, "gemma3n_e2b": gemma3n_e2b, "granite_hybrid": granite_hybrid,
    "granite_hybrid_moe": granite_hybrid_moe, "granite_hybrid_rope": granite_hybrid_rope, "falcon_h1": falcon_h1,
    "falcon_h1_folder": falcon_h1_folder, "nemotron_h": nemotron_h, "nemotron_h_moe": nemotron_h_moe,
    "hunyuan_dense": hunyuan_dense,
}

# Compared as folders alone.
FOLDERS_ONLY = ("falcon_h1_folder",)


# --- The spelling of published checkpoints ---------------------------------------------------------------------------


def flat_rope(config):
    """The keys of RoPE at the top, as before Transformers 5."""
    rope = config.pop("rope_parameters") or default_rope(10000.0)
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope


def published_lfm2(config):
    flat_rope(config)
    config.pop("rope_scaling")
    if "block_multiple_of" in config:
        types = config.pop("layer_types")
        config["full_attn_idxs"] = [i for i, kind in enumerate(types) if kind == FULL]
        config["block_ff_dim"] = config.pop("intermediate_size")
        config["tie_embedding"] = config.pop("tie_word_embeddings")


def published_qwen3_next(config):
    flat_rope(config)
    config.pop("layer_types")


def published_gemma3n(config):
    rope = config.pop("rope_parameters")
    config |= dict(rope_theta=rope[FULL]["rope_theta"], rope_local_base_freq=rope[SLIDING]["rope_theta"],
                   rope_scaling=None)


def published_gemma4(config):
    full = next(iter((config.pop("per_layer_config", None) or {}).values()), {})
    config["global_head_dim"] = full.get("head_dim", config["head_dim"])
    shared = config["num_key_value_heads"] if config["attention_k_eq_v"] else None
    config["num_global_key_value_heads"] = full.get("num_key_value_heads", shared)


def published_granite(config):
    flat_rope(config)
    config.pop("time_step_limit", None)
    config["layer_types"] = ["mamba" if kind == LINEAR else "attention" for kind in config["layer_types"]]


def published_falcon(config):
    flat_rope(config)
    config.pop("time_step_limit", None)


def published_nemotron(config):
    types = config.pop("layers_block_type")
    letters = {LINEAR: "M", FULL: "*", "mlp": "-", "moe": "E"}
    config["hybrid_override_pattern"] = "".join(letters[kind] for kind in types)
    config["num_hidden_layers"] = len(types)
    config["time_step_limit"] = [0.0, float("inf")]  # written as Infinity, which JSON does not know
    if "moe" not in types:
        for key in list(config):
            if "expert" in key or key.startswith(("moe_", "mtp_")) or key in ("n_group", "topk_group"):
                config.pop(key)


def published_hunyuan(config):
    flat_rope(config)
    config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")


PUBLISHED = {
    "lfm2": published_lfm2, "lfm2_moe": published_lfm2, "qwen3_next": published_qwen3_next, "gpt_oss": flat_rope,
    "gemma3n_text": published_gemma3n, "gemma4_text": published_gemma4, "granitemoehybrid": published_granite,
    "falcon_h1": published_falcon, "nemotron_h": published_nemotron, "hunyuan_v1_dense": published_hunyuan,
}


def published(config):
    """The given config.json in the spelling of the published checkpoints; itself if the two do not differ."""
    if config["model_type"] in PUBLISHED:
        PUBLISHED[config["model_type"]](config)
        config["torch_dtype"] = config.pop("dtype")
    return config


# --- Weights ---------------------------------------------------------------------------------------------------------

BUFFERS = ("expert_bias", "e_score_correction_bias", "layer_scalar")


def value(name, tensor, generator, model):
    """Random values of one parameter: of a size that makes each one matter, and states that remember and forget."""
    noise = torch.randn(tensor.shape, generator=generator)
    last = name.rsplit(".", 1)[-1]
    kind = model.config.model_type
    if last == "A_log":
        return torch.log(0.2 + 5.8 * torch.rand(tensor.shape, generator=generator))
    if last == "dt_bias":
        return noise - 2.0
    if last in ("D", "scale", "per_expert_scale", "layer_scalar", "correct_output_scale"):
        return 1.0 + 0.2 * noise
    if last in ("expert_bias", "e_score_correction_bias"):
        return 0.1 * noise
    if last == "sinks":
        return noise
    if ".q_norm" in name or ".k_norm" in name:
        return (0.5 if kind.startswith("gemma") else 1.0) + 0.1 * noise  # scores of Gemma have no other scale
    if "norm" in name:
        return 1.0 + 0.2 * noise
    if last.endswith("bias"):
        return 0.3 * noise
    if "per_layer" in name and "embed" in name:
        return 0.3 * noise
    if "embed" in name:
        return (0.08 if model.config.tie_word_embeddings else 1.0) * noise
    if last.endswith("_coefs") or "_coefs." in name:
        return noise * 0.6 / tensor.shape[-1] ** 0.5
    # The experts of gpt-oss are [experts, inputs, outputs], all other matrices [.., outputs, inputs].
    inputs = -2 if kind == "gpt_oss" and "experts" in name else -1
    return noise * 1.6 / tensor.shape[inputs] ** 0.5


def unused_tensors(config, tensors, seed):
    """Keys and values of the layers that take those of others: published Gemma files hold them, too."""
    draw = torch.Generator().manual_seed(seed)
    count, more = config.num_hidden_layers, {}
    for i in range(count - getattr(config, "num_kv_shared_layers", 0), count):
        like = config.layer_types.index(config.layer_types[i])
        for kind in ("k_proj", "v_proj", "k_norm"):
            shape = tensors[f"model.layers.{like}.self_attn.{kind}.weight"].shape
            more[f"model.layers.{i}.self_attn.{kind}.weight"] = torch.randn(shape, generator=draw)
    return more


def fused_experts(config, tensors):
    """The experts of each layer in two tensors, as published for Qwen3.5; takes the single ones away."""
    fused = {}
    for first in [name for name in tensors if name.endswith(".experts.0.gate_proj.weight")]:
        base = first.removesuffix("0.gate_proj.weight")
        gate, up, down = ([tensors.pop(f"{base}{e}.{kind}_proj.weight") for e in range(config.num_experts)]
                          for kind in ("gate", "up", "down"))
        fused[base + "gate_up_proj"] = torch.stack([torch.cat(both) for both in zip(gate, up)])
        fused[base + "down_proj"] = torch.stack(down)
    return fused


VISION = dict(depth=1, hidden_size=32, intermediate_size=32, num_heads=2, num_position_embeddings=16)
GEMMA_VISION = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                    num_key_value_heads=2, head_dim=16)

# Text models that are published inside one that sees: the model type, the class, and more keys. Transformers opens a
# whole Gemma 3n with the package timm alone.
INSIDE = {
    "qwen3_5_text": ("qwen3_5", "Qwen3_5ForConditionalGeneration", dict(vision_config=VISION)),
    "qwen3_5_moe_text": ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", dict(vision_config=VISION)),
    "gemma4_text": ("gemma4", "Gemma4ForConditionalGeneration", dict(vision_config=GEMMA_VISION, audio_config=None)),
}


def spell_as_published(folder, config, seed):
    """Turns a saved folder into the form of the published checkpoints: config.json and tensors."""
    written = published(json.loads((folder / "config.json").read_text()))
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    if config.model_type in ("gemma3n_text", "gemma4_text"):
        tensors |= unused_tensors(config, tensors, seed)
    if config.model_type == "qwen3_5_moe_text":
        tensors |= fused_experts(config, tensors)
    if config.model_type in INSIDE:
        model_type, architecture, more = INSIDE[config.model_type]
        if model_type.startswith("qwen"):
            more = dict(more, vision_config=dict(more["vision_config"], out_hidden_size=config.hidden_size))
        written.pop("architectures")
        written = dict(architectures=[architecture], model_type=model_type, text_config=written,
                       tie_word_embeddings=config.tie_word_embeddings, torch_dtype="float32", **more)
        tensors = {name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name: value
                   for name, value in tensors.items()}
    if config.model_type.startswith("qwen3_"):  # of the layer that predicts further tokens
        tensors["mtp.norm.weight"] = torch.ones(config.hidden_size)
    (folder / "config.json").write_text(json.dumps(written))
    safetensors.torch.save_file({name: value.contiguous() for name, value in tensors.items()}, file, {"format": "pt"})


def fill(model, seed):
    generator = torch.Generator().manual_seed(seed)
    one_plus = {id(module.weight) for module in model.modules() if type(module).__name__ in ONE_PLUS}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(value(name, parameter, generator, model) - (1.0 if id(parameter) in one_plus else 0.0))
        for name, buffer in model.named_buffers():
            if name.rsplit(".", 1)[-1] in BUFFERS:
                buffer.copy_(value(name, buffer, generator, model))
