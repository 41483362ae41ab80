"""Element by element, reductions, orders, and what makes new values.

Canonical name, then the names of aten and prims.
"""

from __future__ import annotations

from typing import Final

TEXT: Final = """
add: add add_relu sum_to_size logaddexp logaddexp2
subtract: sub rsub subtract
multiply: ldexp mul multiply addcmul
divide: div true_divide floor_divide divide addcdiv floordiv
pow: pow float_power
sqrt: sqrt cbrt
exp: exp exp2 expm1
log: signed_log1p
 log log2 log10 log1p logit
abs: abs absolute fabs
sign: sign sgn copysign signbit heaviside
ceil: ceil
trunc: trunc fix frac modf frexp
tan: tan
arcsin: asin arcsin asinh arcsinh
arccos: acos arccos acosh arccosh
arctan: atan arctan atan2 arctan2 atanh arctanh
sinh: sinh
cosh: cosh
erf: erf erfc erfcx erfinv erf_inv
where: where masked_fill lerp_where
lerp: lerp
shift: bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ __ilshift__ __irshift__ shift_left
 shift_right_arithmetic
complex: complex polar real imag angle conj conj_physical view_as_complex view_as_real
 neg_view is_conj
special_function: xlogy xlog1py
 digamma lgamma gammaln polygamma mvlgamma multigammaln igamma igammac gammainc gammaincc i0 i0e i1
 i1e bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0
 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1
 spherical_bessel_j0 airy_ai entr ndtr ndtri log_ndtr psi sinc zeta chebyshev_polynomial_t chebyshev_polynomial_u
 chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
 shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he
 laguerre_polynomial_l legendre_polynomial_p hypot gcd lcm nextafter deg2rad rad2deg standard_gamma_grad
 dirichlet_grad
nan_to_num: nan_to_num
distance: cdist cdist_forward pdist pdist_forward euclidean_dist dist pairwise_distance cosine_similarity
remainder: remainder fmod
maximum: maximum fmax
minimum: minimum fmin
square: square
compare: eq ne lt le gt ge equal isclose allclose less less_equal greater greater_equal not_equal isin bucketize
logical: logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor isnan isinf
 isfinite __and__ __or__ __xor__ __iand__ __ior__ __ixor__ isneginf isposinf isreal
negative: neg negative positive
clip: clamp_nan_to_num
 clamp clip clamp_max
triangular: tril triu
sum: hash_tensor
 sum nansum powsum grad_sum_to_size xor_sum
mean: mean nanmean
norm: norm linalg_vector_norm vector_norm frobenius_norm nuclear_norm matrix_norm native_norm renorm
var: var var_mean std std_mean cov corrcoef
max: max amax aminmax
min: min amin
any_all: any all is_all_true is_any_true
log_sum_exp: logsumexp
count: count_nonzero bincount
histogram: histc histogram histogramdd histogramdd_bin_edges histogramdd_from_bin_cts histogramdd_from_bin_tensors
segment_reduce: segment_reduce
cumprod: cumprod
cumsum: cumsum logcumsumexp cumulative_trapezoid trapezoid trapz
cummax: cummax cummin cummaxmin cummax_helper cummin_helper
diff: diff gradient
sort: sort argsort msort
topk: topk kthvalue
unique: unique unique2 unique_dim unique_consecutive unique_dim_consecutive
search: searchsorted
median: median nanmedian quantile nanquantile mode
fill: alloc_from_pool
 fill zero zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full empty empty_like
 empty_strided new_empty new_empty_strided scalar_tensor empty_permuted efficientzerotensor
 new_zeros_with_same_feature_meta eye from_file zfill fill_out
arange: arange linspace logspace range iota dim_arange vander bartlett_window blackman_window hamming_window
 hann_window kaiser_window tril_indices triu_indices fftfreq rfftfreq
random: bernoulli
 rand randn randint rand_like randn_like normal uniform randperm multinomial exponential random randint_like
 cauchy geometric log_normal poisson binomial standard_gamma sample_dirichlet normal_functional sobol_engine_draw
 sobol_engine_ff sobol_engine_scramble sobol_engine_initialize_state philox_normal philox_uniform philox_key_split
 philox_key_fold_in philox_rand
rsqrt: rsqrt
floor: floor
round: round
sin: sin
cos: cos
reciprocal: reciprocal
prod: prod
argmax: argmax
argmin: argmin
"""
