"""Canonical name → the aten and prims names that compute it, without namespace, overload and trailing underscore.

What :mod:`perfkit_torch.operator_names` takes off first is not listed: a leading underscore, ``special_``, ``linalg_``,
``_copy`` of functional views, names of back ends, and gradients.
"""

from __future__ import annotations

from typing import Final

FORWARD: Final = {
    "matmul": "matmul mm addmm mv addmv baddbmm linear _addmm_activation addbmm dot vdot inner int_mm scaled_mm "
    "scaled_mm_v2 grouped_mm scaled_grouped_mm scaled_grouped_mm_v2 weight_int4pack_mm weight_int4pack_mm_for_cpu "
    "weight_int4pack_mm_with_scales_and_zeros weight_int8pack_mm dyn_quant_matmul_4bit mixed_dtypes_linear cslt_sparse_mm "
    "wrapped_quantized_linear_prepacked multi_dot chain_matmul vecdot tensordot kron smm sspaddmm hspmm "
    "sampled_addmm semi_structured_mm semi_structured_addmm semi_structured_linear sparse_matmul mm_reduce_impl "
    "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight "
    "fbgemm_linear_int8_weight_fp32_activation trilinear compute_linear_combination",
    "bilinear": "bilinear",
    "bmm": "bmm",
    "outer": "outer ger addr",
    "einsum": "einsum",
    "conv": "conv1d conv2d conv3d convolution _convolution mkldnn_convolution cudnn_convolution miopen_convolution "
    "thnn_conv2d _slow_conv2d_forward slow_conv3d _conv_depthwise2d conv_depthwise3d cudnn_convolution_relu "
    "conv_tbc convolution_mode convolution_overrideable convolution_add_relu convolution_relu depthwise_convolution "
    "slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d nnpack_spatial_convolution slow_conv2d",
    "conv_transpose": "conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution_transpose "
    "convolution_transpose slow_conv_transpose2d slow_conv_transpose3d",
    "attention": "scaled_dot_product_attention _scaled_dot_product_flash_attention _flash_attention_forward "
    "_scaled_dot_product_efficient_attention _efficient_attention_forward _scaled_dot_product_attention_math "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu _native_multi_head_attention "
    "cudnn_attention_forward scaled_dot_product_attention_math_for_mps flash_attention efficient_attention "
    "scaled_dot_product_fused_attention_overrideable flash_attention_forward_no_dropout_inplace cudnn_attention "
    "triton_multi_head_attention triton_scaled_dot_attention transformer_encoder_layer_fwd transform_bias_rescale_qkv",
    "rnn": "lstm gru rnn_tanh rnn_relu _cudnn_rnn _thnn_fused_lstm_cell miopen_rnn gru_cell lstm_cell rnn_relu_cell "
    "rnn_tanh_cell thnn_fused_gru_cell lstm_mps rnn_layer cudnn_rnn_flatten_weight thnn_differentiable_gru_cell "
    "thnn_differentiable_lstm_cell thnn_fused_lstm_cell_backward_impl",
    "embedding": "embedding embedding_bag _embedding_bag _embedding_bag_forward_only embedding_renorm embedding_sparse "
    "embedding_bag_sparse embedding_bag_dense embedding_bag_per_sample_weights no_grad_embedding_renorm",
    "batch_norm": "batch_norm _batch_norm_impl_index native_batch_norm cudnn_batch_norm miopen_batch_norm "
    "_native_batch_norm_legit _batch_norm_with_update batch_norm_stats batch_norm_elemt batch_norm_no_update "
    "batch_norm_with_update_functional native_batch_norm_legit_functional native_batch_norm_legit_no_training "
    "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_gather_stats batch_norm_update_stats "
    "batch_norm_gather_stats_with_counts",
    "layer_norm": "layer_norm native_layer_norm",
    "group_norm": "group_norm native_group_norm instance_norm",
    "rms_norm": "rms_norm _fused_rms_norm",
    "weight_norm": "_weight_norm_interface weight_norm weight_norm_differentiable norm_except_dim",
    "softmax": "softmax _softmax _safe_softmax _masked_softmax nested_tensor_softmax_with_shape",
    "log_softmax": "log_softmax _log_softmax",
    "gelu": "gelu infinitely_differentiable_gelu",
    "silu": "silu",
    "sigmoid": "sigmoid expit",
    "relu": "relu relu6 threshold clamp_min",
    "leaky_relu": "leaky_relu rrelu rrelu_with_noise rrelu_with_noise_functional",
    "elu": "elu celu selu",
    "hardsigmoid": "hardsigmoid",
    "hardtanh": "hardtanh",
    "shrink": "hardshrink softshrink",
    "prelu": "prelu prelu_kernel",
    "log_sigmoid": "log_sigmoid log_sigmoid_forward",
    "dropout": "dropout native_dropout _fused_dropout feature_dropout bernoulli alpha_dropout feature_alpha_dropout "
    "masked_scale fill_mem_eff_dropout_mask cudnn_init_dropout_state",
    "cross_entropy": "cross_entropy_loss",
    "nll_loss": "nll_loss nll_loss_forward nll_loss_nd nll_loss2d nll_loss2d_forward poisson_nll_loss",
    "mse_loss": "mse_loss",
    "l1_loss": "l1_loss smooth_l1_loss huber_loss",
    "binary_cross_entropy": "binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss",
    "kl_div": "kl_div",
    "ctc_loss": "ctc_loss cudnn_ctc_loss miopen_ctc_loss",
    "margin_loss": "margin_ranking_loss multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward "
    "hinge_embedding_loss cosine_embedding_loss triplet_margin_loss",
    "pool": "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices "
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d "
    "fractional_max_pool3d low_memory_max_pool_with_offsets low_memory_max_pool_offsets_to_indices",
    "unpool": "max_unpool2d max_unpool3d",
    "interpolate": "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
    "upsample_bicubic2d upsample_trilinear3d upsample_nearest_exact1d upsample_nearest_exact2d upsample_nearest_exact3d "
    "upsample_bicubic2d_aa upsample_bilinear2d_aa upsample_lanczos2d_aa upsample interpolate upsample_bilinear "
    "upsample_nearest",
    "grid_sample": "grid_sampler grid_sampler_2d grid_sampler_3d grid_sampler_2d_cpu_fallback",
    "affine_grid": "affine_grid_generator",
    "add": "add add_relu sum_to_size logaddexp logaddexp2",
    "subtract": "sub rsub subtract",
    "multiply": "mul multiply addcmul",
    "divide": "div true_divide floor_divide divide addcdiv floordiv",
    "pow": "pow float_power xlogy xlog1py ldexp",
    "sqrt": "sqrt cbrt",
    "exp": "exp exp2 expm1",
    "log": "log log2 log10 log1p logit",
    "abs": "abs absolute fabs",
    "sign": "sign sgn copysign signbit heaviside",
    "ceil": "ceil",
    "trunc": "trunc fix frac modf frexp",
    "tan": "tan",
    "arcsin": "asin arcsin asinh arcsinh",
    "arccos": "acos arccos acosh arccosh",
    "arctan": "atan arctan atan2 arctan2 atanh arctanh",
    "sinh": "sinh",
    "cosh": "cosh",
    "erf": "erf erfc erfcx erfinv erf_inv",
    "where": "where masked_fill lerp_where",
    "lerp": "lerp",
    "shift": "bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ __ilshift__ __irshift__ shift_left "
    "shift_right_arithmetic",
    "complex": "complex polar real imag angle conj conj_physical resolve_conj resolve_neg view_as_complex view_as_real "
    "neg_view is_conj",
    "special_function": "digamma lgamma gammaln polygamma mvlgamma multigammaln igamma igammac gammainc gammaincc i0 i0e "
    "i1 i1e bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 "
    "modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 "
    "spherical_bessel_j0 airy_ai entr ndtr ndtri log_ndtr psi sinc zeta chebyshev_polynomial_t chebyshev_polynomial_u "
    "chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
    "shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he "
    "laguerre_polynomial_l legendre_polynomial_p hypot gcd lcm nextafter deg2rad rad2deg standard_gamma_grad "
    "dirichlet_grad",
    "nan_to_num": "nan_to_num",
    "distance": "cdist cdist_forward pdist pdist_forward euclidean_dist dist pairwise_distance cosine_similarity",
    "remainder": "remainder fmod",
    "maximum": "maximum fmax",
    "minimum": "minimum fmin",
    "square": "square",
    "compare": "eq ne lt le gt ge equal isclose allclose less less_equal greater greater_equal not_equal isin bucketize",
    "logical": "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor "
    "isnan isinf isfinite __and__ __or__ __xor__ __iand__ __ior__ __ixor__ isneginf isposinf isreal",
    "negative": "neg negative positive",
    "clip": "clamp clip clamp_max",
    "triangular": "tril triu",
    "sum": "sum nansum powsum grad_sum_to_size xor_sum",
    "mean": "mean nanmean",
    "norm": "norm linalg_vector_norm vector_norm frobenius_norm nuclear_norm matrix_norm native_norm renorm",
    "var": "var var_mean std std_mean cov corrcoef",
    "max": "max amax aminmax",
    "min": "min amin",
    "any_all": "any all is_all_true is_any_true",
    "log_sum_exp": "logsumexp",
    "count": "count_nonzero bincount",
    "histogram": "histc histogram histogramdd histogramdd_bin_edges histogramdd_from_bin_cts "
    "histogramdd_from_bin_tensors",
    "segment_reduce": "segment_reduce",
    "cumprod": "cumprod",
    "cumsum": "cumsum logcumsumexp cumulative_trapezoid trapezoid trapz",
    "cummax": "cummax cummin cummaxmin cummax_helper cummin_helper",
    "diff": "diff gradient",
    "sort": "sort argsort msort",
    "topk": "topk kthvalue",
    "unique": "unique unique2 unique_dim unique_consecutive unique_dim_consecutive",
    "search": "searchsorted",
    "median": "median nanmedian quantile nanquantile mode",
    "reshape": "reshape view flatten squeeze unsqueeze _unsafe_view _reshape_alias unflatten view_as resize "
    "reshape_as ravel atleast_1d atleast_2d atleast_3d view_of_dtype collapse collapse_view split_dim resize_as "
    "resize_output mkldnn_reshape unflatten_dense_tensors ncf_view ncf_unsqueeze nested_view_from_buffer set set_data "
    "nested_view_from_jagged view_of",
    "transpose": "transpose t permute T swapaxes movedim numpy_T adjoint mT mH matrix_H moveaxis swapdims "
    "mkldnn_transpose channel_shuffle native_channel_shuffle",
    "expand": "expand expand_as repeat broadcast_to repeat_interleave broadcast_tensors broadcast_in_dim meshgrid",
    "concat": "cat concat _cat concatenate column_stack block_diag cartesian_prod combinations chunk_cat "
    "flatten_dense_tensors",
    "split": "split chunk unbind split_with_sizes tensor_split unsafe_split hsplit vsplit dsplit unsafe_chunk "
    "unsafe_split_with_sizes",
    "stack": "stack hstack vstack dstack row_stack",
    "slice": "slice diagonal select narrow as_strided slice_scatter select_scatter as_strided_scatter slice_inverse "
    "fw_primal lift make_dual unpack_dual",
    "alias": "detach alias lift_fresh",
    "diagonal": "diag diag_embed diagflat diagonal_scatter fill_diagonal",
    "pad": "pad constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
    "replication_pad3d pad_circular pad_enum pad_sequence pack_padded_sequence pad_packed_sequence pack_sequence "
    "to_padded_tensor nested_to_padded_tensor nested_from_padded jagged_to_padded_dense_forward "
    "padded_dense_to_jagged_forward nested_from_padded_tensor",
    "unfold": "unfold im2col col2im",
    "pixel_shuffle": "pixel_shuffle pixel_unshuffle",
    "flip": "flip fliplr flipud rot90 rev",
    "gather": "gather take_along_dim index_select take",
    "scatter": "scatter scatter_add index_add index_copy index_put _index_put_impl masked_scatter scatter_reduce "
    "index_reduce index_fill put unsafe_index_put unsafe_masked_index_put_accumulate",
    "index": "index masked_select unsafe_index unsafe_masked_index",
    "nonzero": "nonzero nonzero_numpy nonzero_static argwhere",
    "cast": "to _to_copy type_as float half to_cpu cast_Byte cast_Char cast_Double cast_Float cast_Half cast_Int "
    "cast_Long cast_Short autocast_to_full_precision autocast_to_reduced_precision convert_element_type chalf "
    "saturate_weight_to_fp16",
    "copy": "copy clone _copy_from pin_memory _pin_memory copy_from_and_resize lazy_clone copy_strided copy_to "
    "device_put cpu cuda copy_sparse_to_sparse tensor_to_list list_to_tensor as_tensor tensor",
    "contiguous": "contiguous",
    "fill": "fill zero zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full empty empty_like "
    "empty_strided new_empty new_empty_strided scalar_tensor empty_permuted efficientzerotensor "
    "new_zeros_with_same_feature_meta eye from_file zfill fill_out",
    "arange": "arange linspace logspace range iota dim_arange vander bartlett_window blackman_window hamming_window "
    "hann_window kaiser_window tril_indices triu_indices fftfreq rfftfreq",
    "random": "rand randn randint rand_like randn_like normal uniform randperm multinomial exponential random "
    "randint_like cauchy geometric log_normal poisson binomial standard_gamma sample_dirichlet normal_functional "
    "sobol_engine_draw sobol_engine_ff sobol_engine_scramble sobol_engine_initialize_state philox_normal philox_uniform "
    "philox_key_split philox_key_fold_in philox_rand",
    "item": "item _local_scalar_dense is_nonzero",
    "one_hot": "one_hot",
    "sparse_tensor": "sparse_coo_tensor sparse_coo_tensor_unsafe sparse_coo_tensor_with_dims spdiags "
    "sparse_coo_tensor_with_dims_and_tensors sparse_compressed_tensor sparse_compressed_tensor_unsafe "
    "sparse_compressed_tensor_with_dims sparse_bsc_tensor sparse_bsr_tensor sparse_csc_tensor sparse_csr_tensor "
    "sparse_bsc_tensor_unsafe sparse_bsr_tensor_unsafe sparse_csc_tensor_unsafe sparse_csr_tensor_unsafe sparse_mask "
    "sparse_mask_projection sparse_resize sparse_resize_and_clear indices values crow_indices col_indices ccol_indices "
    "row_indices nested_tensor_from_tensor_list nested_tensor_from_mask",
    "to_sparse": "to_sparse to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr to_sparse_semi_structured to_mkldnn "
    "convert_indices_from_coo_to_csr convert_indices_from_csr_to_coo semi_structured_tile semi_structured_apply "
    "cslt_compress semi_structured_apply_dense mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight",
    "to_dense": "to_dense",
    "coalesce": "coalesce",
    "quantize": "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic choose_qparams_optimized "
    "choose_qparams_per_tensor make_per_tensor_quantized_tensor make_per_channel_quantized_tensor int_repr "
    "fbgemm_linear_quantize_weight fbgemm_pack_quantized_matrix fbgemm_pack_gemm_matrix_fp16 empty_affine_quantized "
    "convert_weight_to_int4pack convert_weight_to_int4pack_for_cpu dyn_quant_pack_4bit_weight wrapped_linear_prepack "
    "empty_per_channel_affine_quantized empty_quantized",
    "dequantize": "dequantize",
    "fake_quantize": "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine fused_moving_avg_obs_fake_quant "
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
    "fake_quantize_learnable_per_tensor_affine fake_quantize_learnable_per_channel_affine "
    "fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fused_moving_avg_obs_fq_helper "
    "_fused_moving_avg_obs_fq_helper_functional",
    "cholesky": "cholesky cholesky_ex",
    "qr": "qr geqrf orgqr ormqr householder_product",
    "svd": "svd svdvals pinv pinverse matrix_rank cond",
    "eig": "eig eigh eigvals eigvalsh",
    "inverse": "inverse inv inv_ex cholesky_inverse tensorinv",
    "solve": "solve solve_ex lstsq lu_solve ldl_solve cholesky_solve cholesky_solve_helper triangular_solve "
    "solve_triangular spsolve tensorsolve",
    "lu": "lu lu_factor lu_factor_ex lu_unpack lu_with_info ldl_factor ldl_factor_ex",
    "determinant": "det logdet slogdet",
    "matrix_function": "matrix_exp matrix_power",
    "cross": "cross",
    "trace": "trace",
    "fft": "fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_rfft fft_rfft2 fft_rfftn fft_irfft fft_irfft2 "
    "fft_irfftn fft_hfft fft_hfft2 fft_hfftn fft_ihfft fft_ihfft2 fft_ihfftn fft_fftshift fft_ifftshift fft_c2c fft_c2r "
    "fft_r2c",
    "stft": "stft istft",
    "check_finite": "_amp_foreach_non_finite_check_and_unscale",
    "update_loss_scale": "_amp_update_scale",
    "wait_event": "record_stream sleep",
    "metadata": "result_type is_pinned size numel stride dim is_contiguous storage_offset sym_size sym_numel sym_stride "
    "sym_storage_offset sym_is_contiguous has_compatible_shallow_copy_type is_same_size is_set_to is_floating_point "
    "is_complex is_signed is_inference element_size nnz sparse_dim dense_dim is_coalesced can_cast promote_types "
    "shape_as_tensor version requires_grad has_same_storage_numel coalesced is_neg is_non_overlapping_and_dense "
    "is_zerotensor is_strides_like_format size_if_not_equal q_scale q_zero_point q_per_channel_scales "
    "q_per_channel_zero_points q_per_channel_axis qscheme infer_size is_leaf output_nr retains_grad nested_tensor_size "
    "nested_tensor_strides nested_tensor_storage_offsets dimI dimV cufft_get_plan_cache_size cufft_clear_plan_cache "
    "cufft_get_plan_cache_max_size cufft_set_plan_cache_max_size cudnn_is_acceptable use_cudnn_ctc_loss "
    "use_miopen_ctc_loss use_cudnn_rnn_flatten_weight nnpack_available is_vulkan_available is_distributed "
    "debug_has_internal_overlap assert_tensor_metadata validate_compressed_sparse_indices validate_sparse_coo_tensor_args "
    "validate_sparse_csr_tensor_args validate_sparse_csc_tensor_args validate_sparse_bsr_tensor_args "
    "validate_sparse_bsc_tensor_args validate_sparse_compressed_tensor_args nested_get_values nested_get_offsets "
    "nested_get_lengths nested_get_ragged_idx nested_get_jagged_dummy nested_get_min_seqlen nested_get_max_seqlen "
    "nested_compute_contiguous_strides_offsets sym_constrain_range sym_constrain_range_for_size assert_scalar "
    "functional_assert_async functional_assert_scalar functional_sym_constrain_range make_dep_token "
    "functional_sym_constrain_range_for_size linalg_check_errors check_errors backward _fused_sdp_choice",
    "print": "print assert_async save",
    "all_reduce": "allreduce all_reduce allreduce_coalesced all_reduce_coalesced allreduce_sparse",
    "all_gather": "allgather all_gather all_gather_into_tensor _allgather_base allgather_into_tensor_coalesced "
    "all_gather_into_tensor_coalesced all_gather_into_tensor_out allgather_coalesced",
    "reduce_scatter": "reduce_scatter reduce_scatter_tensor _reduce_scatter_base reduce_scatter_tensor_coalesced "
    "reduce_scatter_tensor_out",
    "all_to_all": "alltoall all_to_all all_to_all_single alltoall_base",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "send": "send isend",
    "recv": "recv recv_any_source irecv",
    "barrier": "barrier monitored_barrier",
    "wait_collective": "wait_tensor record_param_comms",
}
_SAME: Final = "rsqrt floor round sin cos reciprocal prod argmax argmin tile roll tanh hardswish softplus mish glu"
TABLE: Final = {native: name for name, natives in FORWARD.items() for native in natives.split()} | {
    name: name for name in _SAME.split()
}
"""Name without namespace → canonical name."""
