# SPDX-License-Identifier: Apache-2.0
"""Names of the programs, readable without importing torch (the test process never loads it)."""

NETWORKS = ("resnet50", "densenet121", "mobilenet_v3", "vit", "unet", "lstm", "lstm_cells",
            "encoder", "gpt2")

# Under evict-all the work grows with the square of the number of operators: the deepest networks
# train one step there (and more under evict-random and in budgets).
STEPS = {"resnet50": 1, "mobilenet_v3": 1}

# Feature -> the networks on which it is tried in every run of the tests. With
# EBBTIDE_TEST_ALL=1 each feature is tried on all networks for which it is defined.
FEATURES = {
    "plain": NETWORKS,
    "sgd": ("unet",),
    "adam_foreach": ("encoder",),
    "adam_fused": ("mobilenet_v3",),
    "adamw": ("gpt2",),
    "adagrad": ("lstm",),
    "lbfgs": ("encoder",),
    "clipping": ("lstm", "gpt2"),
    "accumulation": ("encoder",),
    "ema": ("unet",),
    "dropout": ("vit",),
    "batch_norm": ("densenet121",),
    "autocast": ("vit", "unet"),
    "double_backward": ("unet", "encoder"),
    "retain_graph": ("lstm",),
    "anomaly": ("encoder",),
    "custom_function": ("unet",),
    "hooks": ("encoder",),
    "checkpointing": ("resnet50", "gpt2"),
    "functorch": ("encoder", "unet"),
    "parametrizations": ("unet", "encoder"),
    "sparse_embedding": ("sparse_lstm",),
    "variable_shapes": ("unet", "lstm"),
    "evaluation": ("mobilenet_v3", "encoder"),
    "save_resume": ("gpt2", "unet"),
    "inference_mode": ("mobilenet_v3",),
    "channels_last": ("mobilenet_v3",),
}

ONLY = {
    "sparse_embedding": ("sparse_lstm",),
    # A batch norm in training mode cannot run under vmap, mkldnn's LSTM has no batching rule.
    "functorch": ("vit", "unet", "encoder", "gpt2"),
    # No second derivative: mkldnn's LSTM, hardsigmoid.
    "double_backward": ("resnet50", "densenet121", "vit", "unet", "encoder", "gpt2"),
    # oneDNN has no bf16 LSTM on machines without AVX-512.
    "autocast": ("resnet50", "densenet121", "mobilenet_v3", "vit", "unet", "encoder", "gpt2"),
    "batch_norm": ("resnet50", "densenet121", "mobilenet_v3"),
    "channels_last": ("resnet50", "densenet121", "mobilenet_v3", "unet"),
}

# Features whose step needs no more than the network's own floor: tried inside a budget too.
BUDGETED = ("autocast", "checkpointing", "double_backward", "accumulation", "clipping",
            "retain_graph", "save_resume", "evaluation", "variable_shapes")


def pairs(everything):
    """(feature, network) pairs to try; all defined ones if `everything`."""
    chosen = []
    for feature, usual in FEATURES.items():
        networks = ONLY.get(feature, NETWORKS) if everything else usual
        chosen += [(feature, network) for network in networks]
    return chosen
