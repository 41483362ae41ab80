"""Element by element, reductions, orders, and what makes new values.

Canonical name, then Paddle's, where they differ.
"""

from __future__ import annotations

from typing import Final

TEXT: Final = """
add: elementwise_add grad_add add_n fused_elementwise_add fused_elemwise_add_activation fused_scale_bias_add_relu
 partial_sum addcmul add_act increment
subtract: elementwise_sub fused_elementwise_sub
multiply: scale elementwise_mul fused_elementwise_mul multiplex
divide: elementwise_div div_scale floor_divide elementwise_floordiv trunc_divide fused_elementwise_div divide_scalar
pow: elementwise_pow
maximum: elementwise_max fmax elementwise_fmax
minimum: elementwise_min fmin elementwise_fmin
remainder: elementwise_mod
compare: equal not_equal less_than less_equal greater_than greater_equal allclose isclose equal_all
logical: logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor isfinite
 isfinite_v2 isinf isinf_v2 isnan isnan_v2
sum: reduce_sum reduce_sum_p nansum reduce_as identity_loss
mean: mean_all reduce_mean
max: reduce_max amax reduce_amax max_with_index
min: reduce_min amin reduce_amin min_with_index
prod: reduce_prod
norm: p_norm frobenius_norm squared_l2_norm l1_norm renorm
argmax: arg_max
argmin: arg_min
topk: top_k top_k_v2 topk_v1 kthvalue
sort: argsort
any_all: any all reduce_any reduce_all
fill: full full_like full_int_array full_with_tensor full_batch_size_like fill_constant fill_any_like fill_any empty
 empty_like ones ones_like zeros zeros_like eye fill_constant_batch_size_like fill_diagonal fill_diagonal_tensor
 create_array create_array_like set_zero
arange: range linspace arange_tensor range_tensor range_v2 logspace triu_indices
random: uniform uniform_random gaussian gaussian_random randint randperm bernoulli multinomial
 truncated_gaussian_random exponential standard_gamma dirichlet poisson binomial randint_with_seed gaussian_inplace
 uniform_inplace uniform_random_inplace uniform_random_batch_size_like seed shuffle_batch top_p_sampling
triangular: tril triu tril_triu tril_indices
fused_elementwise: fused_elemwise_activation
exp: expm1
log: log2 log10 log1p logit
sign: copysign heaviside elementwise_heaviside
round: rint
arcsin: asin asinh
arccos: acos acosh
arctan: atan atan2 atanh
where: masked_fill fast_where
clip: clip_by_norm
shift: bitwise_left_shift bitwise_right_shift
complex: angle conj real imag as_complex as_real
special_function: digamma lgamma gammaln gammaincc polygamma erfinv i0 i0e i1 i1e nextafter
distance: dist
var: std variance
log_sum_exp: logsumexp
count: bincount is_empty
segment_reduce: segment_pool
cumsum: logcumsumexp
cummax: cummin
unique: unique_consecutive
search: searchsorted
median: nanmedian mode
"""
