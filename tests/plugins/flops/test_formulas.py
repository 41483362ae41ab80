"""FLOPs and bytes of vector operators, recorded arguments and broken recordings, computed by hand."""

from __future__ import annotations

import pytest

from perfkit_core.plugins.flops.arguments import Tensor, Work, arguments, number_type
from perfkit_core.plugins.flops.matrix import (
    convolution,
    grouped_matmul,
    matmul,
    matmul_gradient,
    packed_attention,
    sized_convolution,
)
from perfkit_core.plugins.flops.registry import OperatorFormula, by_canonical_name, parse
from perfkit_core.plugins.flops.vector import normalize, pool, scatter, sized_pool


def work(formula: str, *sizes: list[int] | list[list[int]], dtypes: str = "", values: str = "") -> Work:
    count = len(sizes)
    shapes = str(list(sizes))
    types = dtypes or str(["float" if size else "" for size in sizes]).replace("'", '"')
    given = values or str([""] * count).replace("'", '"')
    found = parse(formula).work(shapes, types, given)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("recorded", "known"),
    [("float", "float32"), ("c10::BFloat16", "bfloat16"), ("c10::Half", "float16"), ("long int", "int64"),
     ("c10::Float8_e4m3fn", "float8"), ("c10::complex<float>", "complex64"), ("unsigned char", "uint8"),
     ("bfloat16", "bfloat16"), ("Scalar", None), ("TensorList", None), ("", None)],
)  # fmt: skip
def test_names_of_number_types(recorded: str, known: str | None) -> None:
    assert number_type(recorded) == known


def test_recorded_arguments_are_tensors_lists_and_values() -> None:
    found = arguments(
        "[[2,3],[],[],[[4],[5,6]],[]]", '["float","Scalar","ScalarList","TensorList","double"]',
        '["","True","[1, 2]","",""]',
    )  # fmt: skip
    assert found == (Tensor((2, 3), "float32"), True, (1, 2), (Tensor((4,)), Tensor((5, 6))), Tensor((), "float64"))


@pytest.mark.parametrize("shapes", ["", "[", "7", '[["a"]]', "[[1],2]", "null"])
def test_broken_arguments_give_no_work(shapes: str) -> None:
    assert parse("elementwise(inputs, inputs)").work(shapes, "[]", "[]") is None
    assert parse("matmul(a, b)").work(shapes, None, None) is None


def test_elementwise_operators_broadcast() -> None:
    found = work("elementwise(inputs, inputs)", [8, 1, 4], [5, 4])
    assert found.flops == 8 * 5 * 4
    assert found.bytes == 4 * (8 * 4 + 5 * 4 + 8 * 5 * 4)
    comparison = by_canonical_name("compare")
    assert comparison is not None
    same = comparison.work("[[10],[10]]", '["float","float"]', None)
    assert same is not None
    assert same.bytes == 4 * 20 + 10


def test_a_number_does_not_widen_the_type_of_a_tensor() -> None:
    found = OperatorFormula("elementwise").work("[[16],[]]", '["c10::BFloat16","double"]', '["",""]')
    assert found is not None
    assert found.dtype == "bfloat16"
    assert found.bytes == 2 * 16 + 8 + 2 * 16


def test_reductions_read_the_input_once() -> None:
    all_dims = work("reduce(input, dims)", [4, 6], [])
    assert (all_dims.flops, all_dims.bytes) == (24, 4 * (24 + 1))
    one = work("reduce(input, dims)", [4, 6], [], values='["", "[1]"]')
    assert one.bytes == 4 * (24 + 4)


def test_pooling_counts_each_element_of_each_window() -> None:
    found = work("pool(input, window, stride, padding)", [2, 3, 8, 8], [], [], [],
                 values='["", "[3, 3]", "[2, 2]", "[1, 1]"]')  # fmt: skip
    assert found.flops == 2 * 3 * 4 * 4 * 9
    assert found.bytes == 4 * (2 * 3 * 8 * 8 + 2 * 3 * 4 * 4)


def test_copies_and_embeddings_compute_nothing() -> None:
    found = work("copy(result, source)", [4, 6], [4, 6], dtypes='["c10::Half","float"]')
    assert (found.flops, found.bytes) == (0, 24 * (2 + 4))
    rows = work("gather(table, indices)", [1000, 8], [5], dtypes='["float","long int"]')
    assert (rows.flops, rows.bytes) == (0, 2 * 5 * 8 * 4 + 5 * 8)


def test_bags_of_embeddings_add_up_rows() -> None:
    found = work("gather_sum(table, indices, starts)", [1000, 8], [12], [4],
                 dtypes='["float","long int","long int"]')  # fmt: skip
    assert (found.flops, found.bytes) == (12 * 8, 4 * (12 * 8 + 4 * 8) + 8 * (12 + 4))


def test_the_results_of_a_bidirectional_network_have_both_directions() -> None:
    """Two layers with three features as inputs, four hidden ones, two samples of five positions; without a cell."""
    weights = [[12, 3], [12, 4], [12], [12]] * 2 + [[12, 8], [12, 4], [12], [12]] * 2
    found = work("recurrent(input, weights, states, bidirectional)", [5, 2, 3], weights, [4, 2, 4], [],
                 dtypes='["float","float","float","Scalar"]', values='["","","","True"]')  # fmt: skip
    matrices = 2 * (12 * 3 + 12 * 4) + 2 * (12 * 8 + 12 * 4)
    read = 5 * 2 * 3 + matrices + 8 * 12 + 4 * 2 * 4
    assert (found.flops, found.bytes) == (2 * 10 * matrices, 4 * (read + 5 * 2 * 4 * 2 + 4 * 2 * 4))


def test_results_whose_sizes_are_recorded() -> None:
    """Operators of Paddle: a gate as a second input or in the first, groups of channels, and a mask."""
    one = work("gated(input, gate)", [4, 10], [], dtypes='["float",""]')
    assert (one.flops, one.bytes) == (20, 4 * (40 + 20))
    two = work("gated(input, gate)", [4, 10], [4, 10], dtypes='["float","float"]')
    assert (two.flops, two.bytes) == (40, 4 * 3 * 40)
    groups = work("sized_elementwise(inputs, sizes)", [2, 6, 5], [], dtypes='["float",""]', values='["","[2,3,5]"]')
    assert (groups.flops, groups.bytes) == (60, 4 * (60 + 30))
    masked = work("dropout(input, mask)", [4, 6], [], dtypes='["float",""]', values='["","[4,6]"]')
    assert masked.bytes == 4 * 2 * 24 + 24
    assert work("dropout(input, mask)", [4, 6], [], dtypes='["float",""]', values='["","False"]').bytes == 4 * 2 * 24


def test_an_optimizer_reads_and_writes_parameters_and_states() -> None:
    found = work("optimizer(parameters, gradients, states, states, per_element=12)",
                 [[10, 10], [5]], [[10, 10], [5]], [[10, 10], [5]], [[10, 10], [5]],
                 dtypes='["float","float","float","float"]')  # fmt: skip
    assert (found.flops, found.bytes) == (12 * 105, 4 * 105 * (3 + 3 + 1))


def test_convolutions_without_recorded_stride_are_unknown() -> None:
    formula = parse("convolution(input, weight, bias, stride, padding, dilation)")
    assert formula.needs_values
    assert formula.work("[[1,3,8,8],[4,3,3,3],[],[],[],[]]", '["float","float","","","",""]', None) is None


def test_packed_sequences_count_only_if_all_have_the_greatest_length() -> None:
    tokens, heads, starts = Tensor((12, 4, 8)), Tensor((12, 4, 8)), Tensor((4,))
    equal = packed_attention(tokens, heads, heads, None, starts, starts, 4, 4)
    assert equal.flops == 3 * 4 * (4 * 4) * 2 * (8 + 8)
    with pytest.raises(ValueError, match="lengths"):
        packed_attention(tokens, heads, heads, None, starts, starts, 6, 6)


@pytest.mark.parametrize("text", ["matmul", "unknown(a)", "matmul(a, c)", "matmul(a, b, per_element=2)"])
def test_wrong_texts_of_formulas_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        parse(text)


def test_values_may_follow_the_tensors() -> None:
    found = arguments("[[2,3],[]]", '["float32",""]', '["","[1, 2]","[4, 5]","False"]')
    assert found == (Tensor((2, 3), "float32"), (1, 2), (4, 5), False)


def test_factors_may_be_transposed() -> None:
    a, b = Tensor((5, 3, 4), "float32"), Tensor((6, 3), "float32")
    found = matmul(a, b, None, True, True)  # 5 times (4 × 3) @ (3 × 6)
    assert found.flops == 2 * 5 * 4 * 3 * 6
    assert found.product == (1, 5 * 4, 6, 3)
    assert found.bytes == 4 * (5 * 3 * 4 + 6 * 3 + 5 * 4 * 6)


def test_gradients_of_products_count_if_they_are_computed() -> None:
    a, b, gradient = Tensor((8, 4), "float32"), Tensor((4, 6), "float32"), Tensor((8, 6), "float32")
    both = matmul_gradient(a, b, gradient, ((8, 4), (4, 6)))
    of_b = matmul_gradient(a, b, gradient, (False, (4, 6)))
    assert (both.flops, of_b.flops) == (2 * 2 * 8 * 4 * 6, 2 * 8 * 4 * 6)
    assert both.bytes == 4 * (48 + 2 * (32 + 24))  # dC once; A and B are read, dA and dB are written
    assert of_b.bytes == 4 * (48 + 32 + 24)


@pytest.mark.parametrize(
    ("a", "b", "flops"),
    [((8, 4), (4, 6), 2 * 8 * 4 * 6), ((4, 4), (4, 6), 2 * 4 * 4 * 6), ((2, 8, 4), (2, 8, 4), None),
     ((2, 4, 4), (2, 4, 4), 2 * 2 * 64), ((8, 4), (4, 8), None), ((8, 4), (5, 6), None)],
)  # fmt: skip
def test_products_without_recorded_layout(a: tuple[int, ...], b: tuple[int, ...], flops: int | None) -> None:
    """(8, 4) and (4, 8) are 8 × 8 results with 4 factors, or 4 × 4 results with 8."""
    found = parse("matmul_of_unknown_layout(a, b)").work(str([list(a), list(b)]), None, None)
    assert (found and found.flops) == flops


def test_groups_split_one_size_of_a_product() -> None:
    """torch's shapes: three groups of rows, of columns, and of the inner size. Together they compute one product."""
    for a, b in (((48, 16), (3, 16, 64)), ((3, 48, 16), (16, 64)), ((48, 16), (16, 64))):
        assert grouped_matmul(Tensor(a), Tensor(b)).flops == 2 * 48 * 16 * 64
    assert grouped_matmul(Tensor((3, 48, 16)), Tensor((3, 16, 64))).flops == 3 * 2 * 48 * 16 * 64


def test_convolutions_with_a_known_result_need_no_stride() -> None:
    image, weight = Tensor((2, 9, 9, 4), "float32"), Tensor((8, 2, 3, 3), "float32")  # channels last, two groups
    found = sized_convolution(image, weight, (2, 5, 5, 8))
    assert found.flops == 2 * 2 * 5 * 5 * 8 * 2 * 9
    assert found.bytes == 4 * (2 * 81 * 4 + 8 * 2 * 9 + 2 * 25 * 8)
    transposed = sized_convolution(Tensor((2, 8, 5, 5)), Tensor((8, 3, 3, 3)), (2, 6, 11, 11), transposed=True)
    assert transposed.flops == 2 * 2 * 5 * 5 * 8 * 3 * 9


def test_pooling_with_a_known_result() -> None:
    image = Tensor((2, 3, 8, 8), "float32")
    assert sized_pool(image, (3, 3), (2, 3, 4, 4), (False, False)).flops == 2 * 3 * 16 * 9
    assert sized_pool(image, (4, 4), (2, 3, 4, 4), (False, True)).flops == 2 * 3 * 64
    assert sized_pool(image, (3, 3), (2, 3, 1, 1), (True, False)).bytes == 4 * (2 * 3 * 64 + 6)


def test_inference_with_known_statistics() -> None:
    image, weight = Tensor((2, 3, 4, 4), "float32"), Tensor((3,), "float32")
    assert normalize(image, weight, weight).flops == 96 * (5 + 2)
    assert normalize(image, weight, weight, inference=True).flops == 96 * (2 + 2)


def test_the_gradient_of_an_embedding_has_the_shape_of_the_table() -> None:
    gradient, indices = Tensor((5, 8), "float32"), Tensor((5,), "int64")
    assert scatter(gradient, indices, (100, 8)).bytes == scatter(gradient, indices, 100).bytes == 4 * 5 * 8 + 40 + 3200


def test_packed_samples_with_four_dimensions() -> None:
    tokens, starts = Tensor((1, 12, 4, 8)), Tensor((4,))
    assert packed_attention(tokens, tokens, tokens, None, starts, starts, 4, 4).flops == 3 * 4 * 16 * 2 * (8 + 8)
    assert packed_attention(tokens, tokens, tokens).flops == 4 * 144 * 2 * (8 + 8)


def test_sizes_without_a_result_are_unknown() -> None:
    """A kernel or a window that is larger than the padded input would give negative FLOPs."""
    small = Tensor((1, 1, 2, 2), "float32")
    once = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    with pytest.raises(ValueError, match="larger than an input"):
        convolution(small, Tensor((1, 1, 5, 5), "float32"), **once)
    with pytest.raises(ValueError, match="larger than an input"):
        pool(small, (3, 3), **once)
    assert parse("convolution(input, weight, bias, stride, padding, dilation)").work(
        "[[1,1,2,2],[1,1,5,5],[],[],[],[]]", None, '["","","",[1,1],[0,0],[1,1]]'
    ) is None  # fmt: skip
