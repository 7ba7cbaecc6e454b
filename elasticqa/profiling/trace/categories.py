"""Categories of operators, kernels and runtime calls, by name."""

import re

OTHER = "other"

# The first match decides, so specific categories come first: the name of a fused optimizer kernel also has "mul".
_CATEGORIES = {
    category: re.compile("|".join(patterns), re.IGNORECASE)
    for category, patterns in {
        "communication": (
            "nccl|gloo|^mpi:|^ucc:|c10d|record_param_comms",
            "all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|multimem|nvshmem",
        ),
        "optimizer": ("optimizer|adam|lamb_|sgd|multi_tensor_apply|_foreach_|_amp_",),
        "attention": ("attention|attn|flash|fmha|sdpa",),
        "normalisation": (
            "(layer|batch|group|rms|instance)_?norm|welford|bn_(fw|bw)",
            "RowwiseMoments|GammaBeta|ComputeInternalGradients",
        ),
        "embedding": ("embedding|index_?select|vectorized_gather",),
        "matmul": (
            "gemm|gemv|cutlass|cublas|nvjet|xmma|splitk|matmul|linear(?!_vector)|einsum|triton_tem",
            "convolution|_conv|conv[123]d|wgrad|dgrad|fprop",
            r"(^|[:_ ])(b|add|addb|baddb)?m[mv](_|$|backward|\d)",
        ),
        "copy": (
            "memcpy|memset|direct_copy|CatArray|nchwToNhwc|nhwcToNchw|pin_memory",
            r"(^|::|[ ])(copy_?|_?to_copy|to|clone|contiguous|cat|stack|item|_local_scalar_dense)(backward\d+)?$",
            "(Copy|ToCopy|Clone|Cat|Stack)(Slices|Backward)",
        ),
        "shape": (
            r"::(empty\w*|view\w*|_?unsafe_view|_?reshape\w*|as_strided_?|slice|select|narrow|split\w*|chunk|unbind)$",
            r"::(t|transpose|permute|expand(_as)?|(un)?squeeze|detach_?|alias|result_type|resize_|set_|new_\w+)$",
            r"(^|::)detach$|(View|Slice|Select|Transpose|T|Permute|Expand|Squeeze|Alias|Split)\w*Backward\d+$",
        ),
        "elementwise": (
            "elementwise|vectorized|unrolled|reduce_kernel|triton_(poi|red|per)|softmax|dropout",
            r"(^|::|[ ])_?(add|mul|sub|rsub|div|neg|exp|log|sqrt|rsqrt|pow|abs|tanh|gelu|relu|silu|sigmoid|erf|cos|sin)"
            r"(c(div|mul))?_?(_?backward\d*)?$",
            r"::(fill_|zero_|where|masked_fill_?|clamp\w*|sum|mean|max|min|amax|eq|ne|lt|le|gt|ge|bitwise_\w+|logical_\w+)$",
            r"::(bernoulli_?|nll_loss\w*|cross_entropy\w*|linalg_vector_norm|cumsum|arange|isnan|isinf|isfinite)$",
            r"^(partial|finish)_sums$",
            r"(Gelu|Tanh|Relu|Sum|Mean|Mul|Add|Sub|Div|Where|MaskedFill|NllLoss|Exp|Log|Pow)Backward\d+$",
        ),
    }.items()
}
CATEGORIES = (*_CATEGORIES, OTHER)

# Events of the profiler itself and of graph inspection, which `key_averages` excludes as well.
PROFILER_EVENTS = frozenset(
    {
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
        "[memory]",
        "[OutOfMemory]",
    }
)

ASYNCHRONOUS = ("gloo:", "mpi:", "ucc:")
"""Prefixes of the annotations of collectives on the CPU, which start on one thread and end on another."""


def category(name: str) -> str:
    """Return the category of an operator or kernel, one of ``CATEGORIES``.

    >>> category("aten::addmm"), category("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    ('matmul', 'communication')
    """
    for found, pattern in _CATEGORIES.items():
        if pattern.search(name):
            return found
    return OTHER


def is_launch(runtime_call: str) -> bool:
    """Whether this call launches a kernel or a CUDA graph.

    >>> is_launch("cudaLaunchKernelExC"), is_launch("cudaGraphLaunch"), is_launch("cudaLaunchHostFunc")
    (True, True, False)
    """
    return "Launch" in runtime_call and "HostFunc" not in runtime_call


def is_graph_launch(runtime_call: str) -> bool:
    """Whether this call launches a CUDA graph."""
    return "GraphLaunch" in runtime_call


def is_wait(runtime_call: str) -> bool:
    """Whether this call only waits for a device."""
    return "Synchronize" in runtime_call
