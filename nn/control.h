// Loops and branches of a model: bodies are functions that write graphs of their own. What a body
// reads it is given; parameters alone it may name, and they become operands.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "nn/module.h"

namespace tandem::nn {

/// Operands in, results out.
using BodyFunction = std::function<Tensors(Trace&, const Tensors&)>;

/// `then` where the predicate (one bool) holds, else `otherwise`: both give results of the same
/// types.
Tensors cond(Trace& trace, Tensor predicate, const Tensors& operands, const BodyFunction& then,
             const BodyFunction& otherwise);

/// Runs `body` while `condition` gives true: both get what is carried, then the operands; `body`
/// gives what is carried to the next step, of the same types. Its gradient runs the loop once more,
/// and has none of its own.
Tensors while_loop(Trace& trace, const Tensors& carried, const Tensors& operands,
                   const std::function<Tensor(Trace&, const Tensors&)>& condition,
                   const BodyFunction& body);

/// Runs `body` as a program of its own: equal bodies, as those of equal layers are, are compiled
/// once, forward and backward. Nothing is fused across its border. Where weights are frozen it is
/// as if the body stood here.
Tensors invoke_subgraph(Trace& trace, const Tensors& operands, const BodyFunction& body);

/// Runs `body` on each row of the operands at once: along dimension `dims[i]` of operand i (counted
/// from the end where negative), or its whole where there is none. Parameters that it names are the
/// same for all rows. Results have the rows in front. Gradients taken inside are of each row.
Tensors vmap(Trace& trace, const Tensors& operands, const std::vector<std::optional<int64_t>>& dims,
             const BodyFunction& body);

struct Scanned {
  Tensors carried;
  Tensors rows;
};
struct ScanOptions {
  bool reverse = false;  // from the last row to the first
};
/// Runs `body` on each row (along the first dimension) of `rows`: it gets what is carried, a row of
/// each, and the operands, and gives what is carried on and a row of each result.
Scanned scan(Trace& trace, const Tensors& carried, const Tensors& rows, const Tensors& operands,
             const std::function<Scanned(Trace&, const Tensors& carried, const Tensors& row,
                                         const Tensors& operands)>& body,
             ScanOptions options = {});

}  // namespace tandem::nn
