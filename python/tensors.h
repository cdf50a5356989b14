// Tensors of Python as arrays of the runtime, and back, without copies.
#pragma once

#include <nanobind/nanobind.h>

#include "driver/face.h"

namespace tandem::python {

namespace nb = nanobind;

/// From here on tensors of exactly `type` cross through torch's C functions; `capsule` is its
/// `__dlpack_c_exchange_api__`. Without it they cross as DLPack capsules.
void use_exchange(nb::object type, nb::object capsule);

/// Borrows the memory: valid as long as the caller holds the tensor. UserError where it is no
/// tensor on the CPU, or has an element type that we do not know; `what` names it.
runtime::Array view_of(nb::handle tensor, std::string_view what);

/// Whether view_of(tensor) is this window on the same memory.
bool is_view_of(const runtime::Array& array, nb::handle tensor);

/// The same of argument `number`.
runtime::Array view_of(nb::handle tensor, size_t number);

/// As view_of; the array keeps the tensor alive.
runtime::Array array_of(nb::handle tensor, std::string_view what);

/// Tensors by name, each as by array_of.
runtime::ConstantValues constants_of(nb::dict tensors);

/// A tensor, int or float.
runtime::Argument argument_of(nb::handle object, size_t number);

/// A torch tensor over the array's memory, which lives as long as the tensor; an int or a float.
nb::object object_of(const runtime::Result& result);

}  // namespace tandem::python
