"""Complex numbers as arguments. They have no text of their own: one is a tensor without dimensions,
and the operator the form that takes tensors."""

import torch

from tandem.fakes import dtype_name

# Where in their arguments is what they are filled with.
_FILLED = {"aten.full": 1, "aten.full_like": 1, "aten.new_full": 2}
_FORMS_OF_TENSORS = {
    "aten.where.ScalarOther": "aten.where.self",
    "aten.where.ScalarSelf": "aten.where.self",
    "aten.pow.Tensor_Scalar": "aten.pow.Tensor_Tensor",
    "aten.pow.Scalar": "aten.pow.Tensor_Tensor",
    "aten.index_fill.int_Scalar": "aten.index_fill.int_Tensor",
}


def has_complex_number(node):
    return any(isinstance(arg, complex) for arg in node.args)


def form_of_tensors(name):
    if name in _FORMS_OF_TENSORS:
        return _FORMS_OF_TENSORS[name]
    return name.removesuffix("Scalar") + "Tensor" if name.endswith(".Scalar") else name


class ComplexLines:
    """The part of the encoder that writes them."""

    def _complex_number(self, value):
        """Of the type that the operator computes in."""
        is_wide = self._at.meta["val"].dtype in (torch.complex128, torch.float64)
        dtype = "f64" if is_wide else "f32"
        parts = [
            self.new("aten.full", "[]", self._argument(part), f"dtype={dtype}")
            for part in (value.real, value.imag)
        ]
        return self.new("aten.complex", *parts)

    def _fills(self, node, name, value):
        """Writes the line where all elements are one number."""
        if name not in _FILLED:
            return False
        sizes = self._argument(list(value.shape))
        zeros = self.new("aten.zeros", sizes, f"dtype={dtype_name(value.dtype)}")
        number = self._argument(node.args[_FILLED[name]])
        call = f"aten.fill.Tensor({zeros}, {number})"
        self._add_line(self._result_names(node, value), call, node)
        return True
