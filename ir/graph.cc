// Edits keep three things in step: the order (an intrusive list), the use-lists, and the epoch that
// tells the pass runner that something changed.
#include "ir/graph.h"

#include <algorithm>

#include "base/check.h"
#include "ir/data_sizes.h"

namespace tandem::ir {

std::string_view name_of(Role role) {
  switch (role) {
    case Role::none: return "none";
    case Role::input: return "input";
    case Role::parameter: return "param";
    case Role::buffer: return "buffer";
    case Role::tangent: return "tangent";
    case Role::later: return "later";
    case Role::saved: return "saved";
    case Role::seed: return "seed";
    case Role::result: return "result";
    case Role::base: return "base";
  }
  return "none";
}

std::string_view name_of(OutputKind kind) {
  switch (kind) {
    case OutputKind::output: return "output";
    case OutputKind::mutated_input: return "mutated";
    case OutputKind::intermediate_base: return "base";
    case OutputKind::gradient: return "grad";
    case OutputKind::saved: return "saved";
    case OutputKind::saved_size: return "saved_size";
  }
  return "output";
}

std::string_view name_of(GraphRole::Kind kind) {
  switch (kind) {
    case GraphRole::Kind::none: return "";
    case GraphRole::Kind::setup: return "setup";
    case GraphRole::Kind::backward: return "backward";
    case GraphRole::Kind::signature: return "signature";
  }
  return "";
}

sym::Pool& Graph::pool() const { return module_->pool(); }
const OpTable& Graph::ops() const { return module_->ops(); }

Value* Graph::new_value(Type type) {
  Value* value = values_.make();
  value->id = next_value_++;
  value->type = std::move(type);
  return value;
}

Value* Graph::add_input(std::string name, Type type, Role role, std::string target) {
  Value* value = new_value(std::move(type));
  value->index = static_cast<uint32_t>(inputs_.size());
  value->name = std::move(name);
  value->role = role;
  value->target = std::move(target);
  inputs_.push_back(value);
  ++epoch_;
  return value;
}

namespace {

template <class F>
std::string free_of(const std::string& name, F taken) {
  std::string free = name;
  for (int number = 2; taken(free); ++number) free = name + "_" + std::to_string(number);
  return free;
}

}  // namespace

std::string Graph::free_input_name(const std::string& name) const {
  return free_of(name, [&](const std::string& candidate) {
    return std::any_of(inputs_.begin(), inputs_.end(),
                       [&](const Value* v) { return v->name == candidate; });
  });
}

void Graph::erase_input(Value* input) {
  TD_CHECK(input->uses.empty()) << "input %" << input->name << " is still used";
  inputs_.erase(std::find(inputs_.begin(), inputs_.end(), input));
  const uint32_t number = input->index;
  for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i]->index = static_cast<uint32_t>(i);
  if (role_.kind != GraphRole::Kind::backward) forget_input(number);
  if (Graph* backward = module_->find(GraphRole::Kind::backward, *this))
    backward->forget_input(number);
  ++epoch_;
}

void Graph::forget_input(uint32_t number) {
  const auto forget = [&](Subject& subject) {
    if (subject.kind != Subject::Kind::input) return;
    if (subject.number == number) subject = {};
    if (subject.number > number) --subject.number;
  };
  for (Value* input : inputs_) forget(input->subject);
  for (Output& output : outputs_) forget(output.subject);
}

void Graph::link(Node* node, Node* before) {
  node->next = before;
  node->prev = before == nullptr ? last_ : before->prev;
  (node->prev == nullptr ? first_ : node->prev->next) = node;
  (before == nullptr ? last_ : before->prev) = node;
}

void Graph::unlink(Node* node) {
  (node->prev == nullptr ? first_ : node->prev->next) = node->next;
  (node->next == nullptr ? last_ : node->next->prev) = node->prev;
}

void Graph::add_uses(Node* node, uint32_t number) {
  const Arg& arg = node->args[number];
  if (Value* const* one = std::get_if<Value*>(&arg)) (*one)->uses.push_back({node, number, 0});
  if (const Values* many = std::get_if<Values>(&arg))
    for (uint32_t i = 0; i < many->size(); ++i)
      if ((*many)[i] != nullptr) (*many)[i]->uses.push_back({node, number, i});
}

void Graph::remove_uses(Node* node, uint32_t number) {
  std::vector<Arg> single{node->args[number]};
  for_each_operand(single, [&](Value* value) {
    std::erase_if(value->uses,
                  [&](const Use& use) { return use.node == node && use.arg == number; });
  });
}

Node* Graph::insert(const Op& op, std::vector<Arg> args, Node* before) {
  std::vector<Type> types = data_dim(op, args) < 0 ? op.types(Call(op, args))
                                                   : data_sized_types(op, args, new_size(pool()));
  for (const Type& type : types)
    for (const sym::Expr& size : type.sizes)
      if (size.range().hi < 0)
        Call(op, args).fail("the result would have a negative size: " + to_string(type));
  return insert_typed(op, std::move(args), std::move(types), before);
}

Node* Graph::insert_typed(const Op& op, std::vector<Arg> args, std::vector<Type> types,
                          Node* before) {
  TD_CHECK(args.size() == op.schema.params.size()) << "arguments of " << op.name();
  Node* node = nodes_.make();
  node->id = next_node_++;
  node->op = &op;
  node->args = std::move(args);
  for (Type& type : types) {
    Value* value = new_value(std::move(type));
    value->node = node;
    value->index = static_cast<uint32_t>(node->results.size());
    node->results.push_back(value);
  }
  link(node, before);
  for (uint32_t i = 0; i < node->args.size(); ++i) add_uses(node, i);
  ++epoch_;
  return node;
}

void Graph::erase(Node* node) {
  for (Value* result : node->results)
    TD_CHECK(result->uses.empty()) << "result of " << node->op->name() << " is still used";
  for (uint32_t i = 0; i < node->args.size(); ++i) remove_uses(node, i);
  unlink(node);
  ++epoch_;
}

void Graph::move_before(Node* node, Node* before) {
  if (node == before) return;
  unlink(node);
  link(node, before);
  ++epoch_;
}

void Graph::set_arg(Node* node, size_t number, Arg arg) {
  remove_uses(node, static_cast<uint32_t>(number));
  node->args[number] = std::move(arg);
  add_uses(node, static_cast<uint32_t>(number));
  ++epoch_;
}

void Graph::replace_all_uses(Value* old, Value* replacement) {
  if (old == replacement) return;
  for (const Use& use : old->uses) {
    if (use.node == nullptr) {
      outputs_[use.arg].value = replacement;
    } else if (Values* many = std::get_if<Values>(&use.node->args[use.arg])) {
      (*many)[use.element] = replacement;
    } else {
      use.node->args[use.arg] = replacement;
    }
    replacement->uses.push_back(use);
  }
  old->uses.clear();
  ++epoch_;
}

void Graph::add_output(Output output) {
  if (output.value != nullptr)
    output.value->uses.push_back({nullptr, static_cast<uint32_t>(outputs_.size()), 0});
  outputs_.push_back(std::move(output));
  ++epoch_;
}

void Graph::set_output(size_t number, Value* value) {
  Value*& output = outputs_[number].value;
  if (output == value) return;
  if (output != nullptr)
    std::erase_if(output->uses,
                  [&](const Use& use) { return use.node == nullptr && use.arg == number; });
  output = value;
  if (value != nullptr) value->uses.push_back({nullptr, static_cast<uint32_t>(number), 0});
  ++epoch_;
}

void Graph::clear_outputs() {
  for (const Output& output : outputs_)
    if (output.value != nullptr)
      std::erase_if(output.value->uses, [](const Use& use) { return use.node == nullptr; });
  outputs_.clear();
  ++epoch_;
}

Value* value_at(const Use& use) {
  const Arg& arg = use.node->args[use.arg];
  if (const Values* many = std::get_if<Values>(&arg)) return (*many)[use.element];
  Value* const* one = std::get_if<Value*>(&arg);
  return one == nullptr ? nullptr : *one;
}

Graph& Module::add_graph(std::string name) {
  TD_CHECK(find(name) == nullptr) << "graph @" << name << " exists";
  graphs_.push_back(std::make_unique<Graph>(*this, std::move(name)));
  return *graphs_.back();
}

Graph* Module::find(std::string_view name) const {
  for (const std::unique_ptr<Graph>& graph : graphs_)
    if (graph->name() == name) return graph.get();
  return nullptr;
}

Graph* Module::find(GraphRole::Kind kind, const Graph& of) const {
  for (const std::unique_ptr<Graph>& graph : graphs_)
    if (graph->role().kind == kind && graph->role().of == of.name()) return graph.get();
  return nullptr;
}

std::string Module::free_name(const std::string& name) const {
  return free_of(name, [&](const std::string& candidate) { return find(candidate) != nullptr; });
}

void Module::erase(std::string_view name) {
  std::erase_if(graphs_,
                [&](const std::unique_ptr<Graph>& graph) { return graph->name() == name; });
}

}  // namespace tandem::ir
