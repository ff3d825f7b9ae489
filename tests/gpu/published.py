# SPDX-License-Identifier: Apache-2.0
"""What the papers print, and what was modelled, for the set-ups of tests/gpu/measure.sh. Their machines and programs are
others: the numbers stand beside ours, and no ratio of ours to them says how good a method is."""

# KVComm, Table 2: Llama-3.1-8B, HF, H100; role 512, question 1000, answers 512, 5 agents. ms, agents 1 to 5.
# Modelled: an H200 at 600 TFLOP/s and 4.08 TB/s.
FIRST_TOKENS = {
    ("llama-3.1-8b", 32, 512, 1000, 512): {
        "published: full (HF, H100)": [125.8, 192.4, 258.3, 330.9, 428.6],
        "published: KVComm (HF, H100)": [113.5, 38.0, 42.1, 48.3, 54.8],
        "modelled: full (H200)": [38, 51, 64, 78, 91],
        "modelled: rectify, 18 % (H200)": [6.3, 8.3, 10.4, 12.5, 14.6],
        "modelled: last text alone (H200)": [4.1, 4.1, 4.1, 4.1, 4.1],
    },
    # RelayCaching, Table 2: Qwen3-0.6B, H20; lengths of the texts are inferred. Agent 1 is not printed.
    ("qwen3-0.6b", 28, 128, 1000, 1000): {
        "published: full (H20)": [None, 85.2, 180.2, 321.5, 493.9],
        "published: CacheBlend (H20)": [None, 44.9, 76.7, 112.5, 159.3],
        "published: RelayCaching (H20)": [None, 40.6, 57.0, 73.2, 104.8],
    },
}

# KVComm, Table 3: Llama-3.1-8B, 3 agents; mean over the agents of full over KVComm, by (prefix, output). Its question is
# taken to be that of Table 2.
GRID = {(prefix, output): value
        for output, line in {128: (2.24, 2.31, 2.56, 3.07, 4.45), 256: (2.50, 2.51, 2.83, 3.44, 4.75),
                             512: (3.05, 3.18, 3.49, 4.09, 5.34), 1024: (4.40, 4.48, 4.75, 5.35, 6.72)}.items()
        for prefix, value in zip((64, 128, 256, 512, 1024), line)}
GRID_SETUP = ("llama-3.1-8b", 32, 3, 1000)  # shape, layers, agents, question

# KVComm, Table A.5: ms of the softmax over the anchors of one text of [32, 8, tokens, 128], by (anchors, tokens).
ANCHORS = {(anchors, tokens): value
           for anchors, line in {5: (0.894, 1.719, 3.552), 10: (1.773, 3.576, 7.128), 15: (2.620, 5.332, 10.766),
                                 20: (3.933, 7.859, 15.624), 25: (4.435, 9.614, 18.113)}.items()
           for tokens, value in zip((1024, 2048, 4096), line)}
ANCHORS_SHAPE = ("llama-3.1-8b", 32)

# RelayCaching, Figure 8: Qwen3-0.6B, H20, 3 agents; mean first token in ms by tokens of output in all.
SCALING = {12288: {"full": 3890, "CacheBlend": 1080, "RelayCaching": 420}}
SCALING_SETUP = ("qwen3-0.6b", 28, 3)
