// Types print in the form that the parser reads; strides appear only where they are not row-major.
#include "ir/type.h"

namespace tandem::ir {

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides(sizes.size());
  sym::Expr step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step = step * sym::max(sizes[i], 1);
  }
  return strides;
}

std::string to_string(const Sizes& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + sym::to_string(sizes[i]);
  return text + "]";
}

std::string to_string(const Type& type) {
  if (!type.is_tensor()) return std::string(name_of(type.dtype));
  std::string text = std::string(name_of(type.dtype)) + to_string(type.sizes);
  if (!type.strides.empty()) {
    std::string strides = to_string(type.strides);
    text += "{" + strides.substr(1, strides.size() - 2) + "}";
  }
  return text;
}

}  // namespace tandem::ir
