"""rg.nn: what networks are made of. Functions in lower case, layers in CamelCase.

>>> x = rg.asarray([[1.0, -2.0, 0.5]])
>>> rg.nn.relu(x)
tensor([[1. , 0. , 0.5]])
>>> float(rg.nn.cross_entropy(x, rg.asarray([0]))) > 0
True

A layer is a `Module`: a frozen tree of tensors with a call, which holds the weights of a
function. It is made with a key, differentiated like any tree, and never changes.

>>> layer = rg.nn.Linear(3, 2, key=rg.random.key(0))
>>> grads = rg.grad(lambda layer: rg.sum(layer(x)))(layer)
>>> grads.weight.shape
(3, 2)
"""

from retrograd.nn.layers.attention import MultiHeadAttention
from retrograd.nn.layers.chain import Dropout, Sequential
from retrograd.nn.layers.conv import Conv, ConvTranspose, DepthwiseConv
from retrograd.nn.layers.linear import MLP, Embedding, Linear
from retrograd.nn.layers.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from retrograd.nn.layers.recurrent import GRU, LSTM, RNN
from retrograd.nn.module import Module, count, freeze, parameters, unfreeze
from retrograd.ops.nn.activations import (
    celu,
    elu,
    geglu,
    gelu,
    glu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softplus,
    softsign,
    swiglu,
)
from retrograd.ops.nn.adaptive_pool import adaptive_avg_pool, adaptive_max_pool
from retrograd.ops.nn.alibi import alibi_bias, alibi_slopes
from retrograd.ops.nn.attention import attention, multi_head_attention
from retrograd.ops.nn.cells import gru_cell, lstm_cell, rnn_cell
from retrograd.ops.nn.class_losses import (
    contrastive,
    cosine,
    cosine_embedding,
    cross_entropy,
    distillation,
    info_nce,
    multi_margin,
    nll,
    triplet,
)
from retrograd.ops.nn.clip import clip_global_norm, clip_values
from retrograd.ops.nn.conv import conv, conv_transpose, depthwise_conv, separable_conv
from retrograd.ops.nn.ctc import ctc
from retrograd.ops.nn.deform import deform_conv
from retrograd.ops.nn.detection import nms, roi_align
from retrograd.ops.nn.dropout import dropout
from retrograd.ops.nn.grid_sample import affine_grid, grid_sample
from retrograd.ops.nn.losses import (
    bce,
    bce_logits,
    dice,
    focal,
    gaussian_nll,
    hinge,
    huber,
    kl_div,
    mae,
    mse,
    poisson_nll,
    smooth_l1,
)
from retrograd.ops.nn.norms import (
    add_layer_norm,
    add_rms_norm,
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
    spectral_norm,
    weight_norm,
)
from retrograd.ops.nn.patches import col2im, im2col
from retrograd.ops.nn.pool import (
    avg_pool,
    global_avg_pool,
    global_max_pool,
    lp_pool,
    max_pool,
    max_unpool,
)
from retrograd.ops.nn.recurrent import gru, lstm, rnn
from retrograd.ops.nn.resize import resize, upsample
from retrograd.ops.nn.rotary import rotary
from retrograd.ops.nn.softmax import gumbel_softmax, log_softmax, softmax, softmin
from retrograd.ops.nn.vision import pixel_shuffle, pixel_unshuffle, ssim

__all__ = [
    "BatchNorm",
    "Conv",
    "ConvTranspose",
    "DepthwiseConv",
    "Dropout",
    "Embedding",
    "GRU",
    "GroupNorm",
    "InstanceNorm",
    "LSTM",
    "LayerNorm",
    "Linear",
    "MLP",
    "Module",
    "MultiHeadAttention",
    "RMSNorm",
    "RNN",
    "Sequential",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "add_layer_norm",
    "add_rms_norm",
    "affine_grid",
    "alibi_bias",
    "alibi_slopes",
    "attention",
    "avg_pool",
    "batch_norm",
    "bce",
    "bce_logits",
    "celu",
    "clip_global_norm",
    "clip_values",
    "col2im",
    "contrastive",
    "conv",
    "conv_transpose",
    "cosine",
    "cosine_embedding",
    "count",
    "cross_entropy",
    "ctc",
    "deform_conv",
    "depthwise_conv",
    "dice",
    "distillation",
    "dropout",
    "elu",
    "focal",
    "freeze",
    "gaussian_nll",
    "geglu",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "grid_sample",
    "group_norm",
    "gru",
    "gru_cell",
    "gumbel_softmax",
    "hardsigmoid",
    "hardswish",
    "hinge",
    "huber",
    "im2col",
    "info_nce",
    "instance_norm",
    "kl_div",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "lp_pool",
    "lstm",
    "lstm_cell",
    "mae",
    "max_pool",
    "max_unpool",
    "mish",
    "mse",
    "multi_head_attention",
    "multi_margin",
    "nll",
    "nms",
    "parameters",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll",
    "prelu",
    "relu",
    "relu6",
    "resize",
    "rms_norm",
    "rnn",
    "rnn_cell",
    "roi_align",
    "rotary",
    "selu",
    "separable_conv",
    "sigmoid",
    "silu",
    "smooth_l1",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "spectral_norm",
    "ssim",
    "swiglu",
    "triplet",
    "unfreeze",
    "upsample",
    "weight_norm",
]
