"""Linear algebra, domains, training, communication, control, and what only asks.

Canonical name, then Paddle's, where they differ.
"""

from __future__ import annotations

from typing import Final

TEXT: Final = """
optimizer_update: adam adamw adamax adagrad adadelta sgd momentum merged_momentum merged_adam fused_adam lamb lars
 lars_momentum rmsprop rprop nadam radam asgd dgc_momentum distributed_fused_lamb ftrl dpsgd decayed_adagrad
 average_accumulates distributed_fused_lamb_init dgc dgc_clip_by_norm sparse_momentum pow2_decay_with_linear_warmup
check_finite: check_finite_and_unscale check_numerics
all_reduce: allreduce allreduce_sum allreduce_max allreduce_min allreduce_prod allreduce_avg mp_allreduce_sum
 mp_allreduce identity_allreduce
all_gather: allgather partial_allgather
reduce_scatter: reducescatter
reduce: reduce_avg
all_to_all: alltoall global_scatter global_gather dist_reshape reshard reshard_v2
send: send_v2 partial_send p_send p_send_array
recv: recv_v2 partial_recv p_recv p_recv_array
svd: svdvals matrix_rank matrix_rank_tol matrix_rank_atol_rtol
eig: eigh eigvals eigvalsh
solve: cholesky_solve triangular_solve lu_solve lstsq
lu: lu_unpack
determinant: det slogdet slogdeterminant slogdet_v2
matrix_function: matrix_power
fft: fft_c2c fft_c2r fft_r2c
nms: multiclass_nms multiclass_nms3 matrix_nms
roi_align: roi_pool psroi_pool
boxes: box_clip box_coder prior_box anchor_generator yolo_box yolo_box_head yolo_box_post yolo_loss yolov3_loss
 generate_proposals generate_proposals_v2 collect_fpn_proposals distribute_fpn_proposals bipartite_match
message_passing: graph_send_recv graph_send_ue_recv graph_send_uv send_u_recv send_ue_recv send_uv
graph_sample: graph_khop_sampler graph_sample_neighbors graph_reindex reindex_graph weighted_sample_neighbors
 tdm_child tdm_sampler
beam_search: beam_search_decode viterbi_decode crf_decoding generate_sequence
alignment: ctc_align edit_distance faster_tokenizer
accuracy: auc chunk_eval accuracy_check
update_loss_scale: update_loss_scaling
broadcast: c_broadcast
wait_collective: wait_comm wait_compute
wait_event: sync_calc_stream sync_comm_stream depend
metadata: numel shape shape64 size array_length lod_array_length number_of_elements check_memory_continue nop core
 parameter data shadow_output shadow_feed shadow_feed_tensors feed comm_init_all comm_init comm_init_multitrainer
 gen_xccl_id shard_tensor dtensor_from_local dtensor_to_local moe_global_mesh_tensor moe_sub_mesh_tensors
 update_parameter
file_access: load load_combine save save_combine decode_jpeg read create_py_reader create_double_buffer_reader
print: assert enable_check_model_nan_inf disable_check_model_nan_inf check_model_nan_inf
control_flow: if while conditional_block conditional_block_infer select_input select_output tuple_push tuple_pop yield
 assert_instruction has_elements
compiled_region: run_program Dy2St dy2_st fusion_group tensorrt_engine openvino_engine cinn_jit
 ap_trivial_fusion_begin ap_trivial_fusion_end ap_variadic ap_facade
custom_function: pylayer py_func custom_kernel
collective_call: c_scatter
"""
