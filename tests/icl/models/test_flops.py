"""What operations cost, against loops that count them one by one; layers are counted by hand where they are tested."""

import pytest
import torch
from torch import nn

from icl.models import flops
from icl.models.fast_weights import FastWeights, Weights
from icl.models.flops import cost

F64 = {"dtype": torch.float64}


def test_elimination_costs_what_a_loop_over_it_says():
    """The rule for a linear system is the number of divisions, products and differences in elimination without pivots
    and two triangular solves, counted one by one.
    """
    for n in range(1, 9):
        count = 0
        for k in range(n):
            count += n - 1 - k  # factors of the rows below
            count += 2 * (n - 1 - k) ** 2  # those rows
        for k in range(n):
            count += 2 * k  # forward, the diagonal being 1
            count += 2 * k + 1  # backward
        bare, solving = cost(_Bare(n)).flops, cost(_Solving(n)).flops
        assert solving - bare == count


PRODUCTS = {
    "mm": lambda x, M: x @ M,
    "mm, the prompts on the right": lambda x, M: M.T @ x.T,
    "bmm": lambda x, M: torch.bmm(x.unsqueeze(1), M.repeat(len(x), 1, 1)),
    "bmm, the prompts on the right": lambda x, M: torch.bmm(M.T.repeat(len(x), 1, 1), x.unsqueeze(2)),
    "tokens of three axes": lambda x, M: x.unsqueeze(1) @ M,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_of_matrices_costs_what_a_loop_over_it_says(name):
    """The rule for products of matrices is the number of products and sums, counted one by one, on either side."""
    for n in range(1, 5):
        for columns in range(1, 5):
            count = 0
            for _ in range(columns):
                count += n  # products
                count += n - 1  # sums
            assert cost(_Multiplying(n, columns, PRODUCTS[name])).flops - cost(_Bare(n)).flops == count


def test_a_product_with_a_vector_costs_what_a_loop_over_it_says():
    """The same for a matrix, a row a prompt, times one vector."""
    for n in range(1, 9):
        assert cost(_Multiplying(n, 1, lambda x, M: x @ M[:, 0])).flops - cost(_Bare(n)).flops == n + (n - 1)


class _Bare(FastWeights[Weights]):
    """A layer that answers with a product and learns nothing."""

    def __init__(self, d):
        super().__init__(d)
        self.one = nn.Parameter(torch.ones((), **F64))

    def _start(self, w_hat):
        return Weights(w_hat)

    def _write(self, state, x, y):
        return state

    def _read(self, state, x):
        return (state.w_hat * x).sum(-1)


class _Solving(_Bare):
    """The same with a linear system in between."""

    def __init__(self, d):
        super().__init__(d)
        self.register_buffer("system", torch.eye(d, **F64))

    def _read(self, state, x):
        return (torch.linalg.solve(self.system.repeat(len(x), 1, 1), state.w_hat) * x).sum(-1)


class _Multiplying(_Bare):
    """The same after a product of the inputs with a fixed matrix, which no one looks at."""

    def __init__(self, d, columns, product):
        super().__init__(d)
        self.register_buffer("matrix", torch.ones(d, columns, **F64))
        self.product = product

    def _read(self, state, x):
        self.product(x, self.matrix)
        return super()._read(state, x)


class _Unheard(_Bare):
    """The same with an operation that no layer uses."""

    def _read(self, state, x):
        return (state.w_hat * torch.special.bessel_j0(x)).sum(-1)


def test_an_operation_without_a_rule_is_refused_by_name():
    """An operation that the count does not know is no free operation."""
    with pytest.raises(NotImplementedError, match="cost has no rule for the operation special_bessel_j0"):
        cost(_Unheard(3))


def test_sides_of_a_system_are_counted_one_by_one():
    """Of 4 equations: 4 * 3 * 17 / 6 to eliminate, and 2 * 16 - 4 for each of three sides; for two systems."""
    A, b = torch.eye(4).repeat(2, 1, 1), torch.ones(2, 4, 3)
    assert flops._solving(torch.linalg.solve_ex(A, b), (A, b)) == 2 * (34 + 3 * 28)
