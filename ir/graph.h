// The tensor graph: mutable, arena-owned, ordered nodes with use-lists.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/arena.h"
#include "ir/op.h"

namespace tandem::ir {

class Graph;
class Module;
struct Node;

enum class Role : uint8_t {
  none,
  input,
  parameter,
  buffer,
  tangent,
  later,  // the caller's tensor as it is when backward runs, which writes it; of that input
  saved,
  seed,
  result,  // of a signature: an output of the program that it is of
  base     // memory that other inputs lie in; no input of the program that was written
};
std::string_view name_of(Role role);
/// Forward does not have it.
inline bool comes_with_backward(Role role) { return role == Role::tangent || role == Role::later; }

/// What a tangent or a gradient is of, or what comes with backward: a result or an input, by its
/// number, of the graph that reverse mode ran on. A backward graph names those of its forward.
struct Subject {
  enum class Kind : uint8_t { none, output, input };
  Kind kind = Kind::none;
  uint32_t number = 0;
};

/// In which ways a program writes one of its inputs; of a signature.
struct Writes {
  bool recorded = false;  // autograd sees it
  bool hidden = false;    // through a detached alias
  bool no_grad = false;   // under no_grad, or as running statistics are
  bool backward = false;  // when backward runs
  bool any() const { return recorded || hidden || no_grad || backward; }
};

/// Where an input lies in the memory of another one, whose role is base.
struct Within {
  std::string base;    // its name; empty: the input has memory of its own, as far as is known
  int64_t offset = 0;  // of its first element from that of the base, in elements of its own
};

/// What a graph is to another one of its module.
struct GraphRole {
  enum class Kind : uint8_t {
    none,
    setup,     // computes constants of it
    backward,  // reads what it saves, gives its gradients
    signature  // gives what its caller gets, of what it takes and gives: views, replayed
  };
  Kind kind = Kind::none;
  std::string of;  // name of the other one
};
std::string_view name_of(GraphRole::Kind kind);

/// Whether the partitioner may recompute a node. Merged values keep the stronger: must_save wins.
enum class RecomputePolicy : uint8_t {
  none,
  must_recompute,
  prefer_recompute,
  prefer_save,
  must_save
};

struct Use {
  Node* node = nullptr;  // null: a graph output
  uint32_t arg = 0;      // argument number, or output number
  uint32_t element = 0;  // within a list argument
};

struct Value {
  uint32_t id = 0;  // dense in its graph
  Type type;
  Node* node = nullptr;  // null for a graph input
  uint32_t index = 0;    // result number, or input number
  std::string name;      // inputs always; results when the front end gave one
  Role role = Role::none;
  Subject subject;             // of a tangent, or of what comes later
  std::string target;          // of a parameter or buffer: its qualified name, "fc.weight"
  bool requires_grad = false;  // inputs only: the joint graph computes its gradient
  bool constant = false;       // inputs only: given once for a program, not at each call
  bool zeros = false;  // inputs only: all its elements are 0; a program asks what it is given
  Writes writes;       // inputs of a signature only
  Within within;       // inputs only, up to synthetic_bases
  std::vector<Use> uses;
};

/// Where a node came from. A backward node points at its forward node by id.
struct Origin {
  std::string place;     // "model.py:41"
  std::string module;    // "blocks.0.attention", when known
  int64_t forward = -1;  // id of the forward node
};

struct Node {
  uint32_t id = 0;
  const Op* op = nullptr;
  std::vector<Arg> args;  // in schema order, defaults filled in
  Values results;
  Origin origin;
  bool no_grad = false;   // runs under torch.no_grad
  bool backward = false;  // made by reverse mode
  int32_t region = 0;     // checkpoint region, 0 for none
  RecomputePolicy policy = RecomputePolicy::none;
  /// 0 … 1: of the bytes that nodes with this number save beyond the fewest possible, up to
  /// passes::region_budgets; none: what the whole graph's partition says.
  std::optional<double> memory_budget;
  Node* prev = nullptr;
  Node* next = nullptr;

  Call call() const { return {*op, args, results}; }
};

enum class OutputKind : uint8_t {
  output,
  mutated_input,
  intermediate_base,
  gradient,
  saved,
  saved_size
};
std::string_view name_of(OutputKind kind);

struct Output {
  Value* value = nullptr;  // null: none (no gradient for that input)
  OutputKind kind = OutputKind::output;
  std::string name;  // of a gradient: the input's name
  /// Dimensions from the outermost in memory to the innermost, where that is not row-major; the
  /// result has no gaps.
  std::vector<int64_t> order{};
  Subject subject{};  // of a gradient, or of a derivative: the result that it is of
};

/// Nodes in program order. `for (Node* n = g.first(); n; n = n->next)`; erase keeps `next`
/// readable.
class Graph {
 public:
  Graph(Module& module, std::string name) : module_(&module), name_(std::move(name)) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Module& module() const { return *module_; }
  const std::string& name() const { return name_; }
  const GraphRole& role() const { return role_; }
  void set_role(GraphRole role) { role_ = std::move(role); }
  sym::Pool& pool() const;
  const OpTable& ops() const;

  Value* add_input(std::string name, Type type, Role role = Role::input, std::string target = "");
  /// `name`, or with a number behind it where an input has that name already.
  std::string free_input_name(const std::string& name) const;
  const Values& inputs() const { return inputs_; }
  /// Later inputs move up, and so do the numbers of subjects, here and in the backward graph.
  void erase_input(Value* input);

  Node* first() const { return first_; }
  Node* last() const { return last_; }
  /// Inserts before `before`, or at the end when null. Args must be complete; types come from the
  /// op.
  Node* insert(const Op& op, std::vector<Arg> args, Node* before);
  /// As insert, with result types given: only for clones of nodes that exist (and host nodes).
  Node* insert_typed(const Op& op, std::vector<Arg> args, std::vector<Type> types, Node* before);
  void erase(Node* node);
  void move_before(Node* node, Node* before);
  void set_arg(Node* node, size_t number, Arg arg);
  void replace_all_uses(Value* old, Value* replacement);

  const std::vector<Output>& outputs() const { return outputs_; }
  void add_output(Output output);
  void add_output(Value* value, OutputKind kind = OutputKind::output, std::string name = "") {
    add_output(Output{value, kind, std::move(name), {}});
  }
  void set_output(size_t number, Value* value);
  void clear_outputs();

  size_t node_ids() const { return next_node_; }  // for DenseMap sizes
  size_t value_ids() const { return next_value_; }
  /// Changes with every edit; the pass runner dumps by it.
  uint64_t epoch() const { return epoch_; }

 private:
  friend class Module;
  Value* new_value(Type type);
  void link(Node* node, Node* before);
  void unlink(Node* node);
  void add_uses(Node* node, uint32_t number);
  void remove_uses(Node* node, uint32_t number);
  void forget_input(uint32_t number);

  Module* module_;
  std::string name_;
  GraphRole role_;
  Arena<Node> nodes_;
  Arena<Value> values_;
  Values inputs_;
  std::vector<Output> outputs_;
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  uint32_t next_node_ = 0;
  uint32_t next_value_ = 0;
  uint64_t epoch_ = 0;
};

/// Named graphs over one pool of sizes and one table of operators.
class Module {
 public:
  explicit Module(const OpTable& ops) : ops_(&ops), pool_(std::make_unique<sym::Pool>()) {}
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Graph& add_graph(std::string name);
  Graph* find(std::string_view name) const;
  /// The graph that is this to `of`; null where there is none.
  Graph* find(GraphRole::Kind kind, const Graph& of) const;
  /// `name`, or with a number behind it where a graph has that name already.
  std::string free_name(const std::string& name) const;
  void erase(std::string_view name);
  const std::vector<std::unique_ptr<Graph>>& graphs() const { return graphs_; }
  sym::Pool& pool() const { return *pool_; }
  const OpTable& ops() const { return *ops_; }

 private:
  const OpTable* ops_;
  std::unique_ptr<sym::Pool> pool_;
  std::vector<std::unique_ptr<Graph>> graphs_;
};

/// What a node reads there; null where that is no value.
Value* value_at(const Use& use);

/// Calls f on every value an argument list reads, in order (nulls of Tensor?[] lists left out).
template <class F>
void for_each_operand(const std::vector<Arg>& args, F f) {
  for (const Arg& arg : args) {
    if (Value* const* one = std::get_if<Value*>(&arg)) {
      f(*one);
    } else if (const Values* many = std::get_if<Values>(&arg)) {
      for (Value* value : *many)
        if (value != nullptr) f(value);
    }
  }
}

/// The same argument with every value replaced by map(value).
template <class F>
Arg map_operands(const Arg& arg, F map) {
  if (Value* const* one = std::get_if<Value*>(&arg)) return map(*one);
  if (const Values* many = std::get_if<Values>(&arg)) {
    Values mapped;
    for (Value* value : *many) mapped.push_back(value == nullptr ? nullptr : map(value));
    return mapped;
  }
  return arg;
}

}  // namespace tandem::ir
