// The calls; ops/index/data_sized.cc says what they come down to.
#include "nn/data_sizes.h"

#include "base/diagnostic.h"
#include "ir/data_sizes.h"

namespace tandem::nn {

Tensor nonzero(Tensor x) { return ops::call(x.builder(), "aten.nonzero", {x}); }

Tensor masked_select(Tensor x, Tensor mask) {
  return ops::call(x.builder(), "aten.masked_select", {x, mask});
}

Tensor index(Tensor x, Tensor mask) {
  return ops::call(x.builder(), "aten.index.Tensor", {x, Tensors{mask}});
}

Unique unique(Tensor x) {
  const Tensors made = ops::call_many(x.builder(), "aten._unique2", {x, true, true, true});
  return {made[0], made[1], made[2]};
}

sym::Expr item(Tensor x, sym::Range range) {
  if (is_float(x.dtype()))
    throw UserError("[tandem::item] " + ir::to_string(x.type()) +
                    " is no integer, and sizes are integers");
  sym::Pool& pool = x.builder().graph().pool();
  const std::string name = ir::new_size(pool, range).name();
  x.builder().call("aten.item", {x.value()})->results[0]->name = name;
  return *pool.find_symbol(name);
}

}  // namespace tandem::nn
