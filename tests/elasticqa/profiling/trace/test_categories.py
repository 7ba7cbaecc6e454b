import pytest

from elasticqa.profiling.trace.categories import category, is_graph_launch, is_launch, is_wait


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::mm", "matmul"),
        ("aten::baddbmm", "matmul"),
        ("aten::linear", "matmul"),
        ("MmBackward0", "matmul"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "matmul"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", "matmul"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_TNT", "matmul"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x5_nn_align8>", "matmul"),
        ("aten::scaled_dot_product_attention", "attention"),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention"),
        ("torch_attn::_varlen_attn", "attention"),
        ("aten::native_layer_norm", "normalisation"),
        ("NativeLayerNormBackward0", "normalisation"),
        ("triton_per_fused_native_layer_norm_add_3", "normalisation"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", "normalisation"),
        ("aten::gelu", "elementwise"),
        ("GeluBackward0", "elementwise"),
        ("aten::_softmax", "elementwise"),
        ("aten::dropout", "elementwise"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>", "elementwise"),
        ("triton_poi_fused_gelu_2", "elementwise"),
        ("aten::linalg_vector_norm", "elementwise"),
        ("aten::embedding", "embedding"),
        ("EmbeddingBackward0", "embedding"),
        ("void at::native::vectorized_gather_kernel<16, long>", "embedding"),
        ("aten::_fused_adamw_", "optimizer"),
        ("adamw_update", "optimizer"),
        ("attention_backward", "attention"),
        ("residual_layer_norm_backward", "normalisation"),
        ("gelu_backward", "elementwise"),
        ("partial_sums", "elementwise"),
        ("aten::_foreach_mul_", "optimizer"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>", "optimizer"),
        ("c10d::allreduce_", "communication"),
        ("gloo:all_reduce", "communication"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("_c10d_functional::all_gather_into_tensor", "communication"),
        ("aten::copy_", "copy"),
        ("aten::_to_copy", "copy"),
        ("aten::cat", "copy"),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
        ("aten::empty", "shape"),
        ("aten::transpose", "shape"),
        ("ViewBackward0", "shape"),
        ("aten::sort", "other"),
        ("forward", "other"),
    ],
)
def test_category_of_names_in_training_traces(name: str, expected: str) -> None:
    assert category(name) == expected


def test_launches_and_waits_differ_from_other_calls() -> None:
    calls = ["cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "hipLaunchKernel", "cudaMemcpyAsync"]
    assert [is_launch(call) for call in calls] == [True, True, True, True, False]
    assert [is_graph_launch(call) for call in calls] == [False, False, True, False, False]
    waits = ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamWaitEvent"]
    assert [is_wait(call) for call in waits] == [True, True, True, False]
