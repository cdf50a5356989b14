// Names are made by walking up the owners, so a module can be built before its place is known to
// anyone else.
#include "nn/module.h"

#include "base/check.h"

namespace tandem::nn {

Parameter::Parameter(Module& owner, std::string name, std::vector<int64_t> sizes, Init init,
                     DType dtype, bool trained)
    : owner_(&owner),
      name_(std::move(name)),
      sizes_(std::move(sizes)),
      init_(init),
      dtype_(dtype),
      trained_(trained) {
  owner.own_.push_back(this);
}

std::string Parameter::qualified_name() const {
  std::string prefix = owner_->qualified_name();
  return prefix.empty() ? name_ : prefix + "." + name_;
}

Module::Module(Module& parent, std::string name) : parent_(&parent), name_(std::move(name)) {
  parent.children_.push_back(this);
}

std::string Module::qualified_name() const {
  std::string name = name_;
  for (const Module* at = parent_; at != nullptr; at = at->parent_)
    if (!at->name_.empty()) name = at->name_ + "." + name;
  return name;
}

std::vector<const Parameter*> Module::parameters() const {
  std::vector<const Parameter*> all;
  std::vector<const Module*> stack{this};
  while (!stack.empty()) {
    const Module* module = stack.back();
    stack.pop_back();
    all.insert(all.end(), module->own_.begin(), module->own_.end());
    stack.insert(stack.end(), module->children_.rbegin(), module->children_.rend());
  }
  return all;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Parameter* parameter : parameters()) {
    int64_t elements = parameter->trained() ? 1 : 0;
    for (int64_t size : parameter->sizes()) elements *= size;
    count += elements;
  }
  return count;
}

Tensor Trace::input(const std::string& name, DType dtype, const ir::Sizes& sizes) {
  return {builder_, builder_.graph().add_input(name, ir::Type::tensor(dtype, sizes))};
}

Tensor Trace::operator()(const Parameter& parameter) {
  ir::Value*& value = inputs_[&parameter];
  if (value == nullptr) {
    std::string name = parameter.qualified_name();
    ir::Sizes sizes(parameter.sizes().begin(), parameter.sizes().end());
    value = builder_.graph().add_input(name, ir::Type::tensor(parameter.dtype(), sizes),
                                       parameter.trained() ? ir::Role::parameter : ir::Role::buffer,
                                       name);
    value->requires_grad = parameter.trained();
    used_.push_back(&parameter);
  }
  return {builder_, value};
}

void Trace::update(const Parameter& buffer, Tensor value) {
  Tensor old = (*this)(buffer);
  builder_.stamp().no_grad = true;
  ops::call(builder_, "aten.copy_", {old, value});
  builder_.stamp().no_grad = false;
}

}  // namespace tandem::nn
