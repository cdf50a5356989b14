// Modules: named parameters and buffers, and forward functions that write graphs. Values live with
// the program that runs (driver/state.h); a module only says what there is and how it starts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/tensor.h"

namespace tandem::nn {

using ops::Tensor;
using ops::Tensors;

/// How a parameter starts. `scale` is the standard deviation (normal) or the bound (uniform).
struct Init {
  enum class Kind : uint8_t { zeros, ones, normal, uniform } kind = Kind::zeros;
  double scale = 1;
  static Init zeros() { return {Kind::zeros, 0}; }
  static Init ones() { return {Kind::ones, 1}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
};

class Module;

/// A tensor that a module owns: trained (parameter) or kept (buffer).
class Parameter {
 public:
  Parameter(Module& owner, std::string name, std::vector<int64_t> sizes, Init init,
            DType dtype = DType::f32, bool trained = true);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  /// "blocks.0.attention.weight": names of the owners, outermost first.
  std::string qualified_name() const;
  const std::vector<int64_t>& sizes() const { return sizes_; }
  DType dtype() const { return dtype_; }
  const Init& init() const { return init_; }
  bool trained() const { return trained_; }

 private:
  const Module* owner_;
  std::string name_;
  std::vector<int64_t> sizes_;
  Init init_;
  DType dtype_;
  bool trained_;
};

/// A graph in the making. Parameters become inputs on first use.
class Trace {
 public:
  Trace(ir::Graph& graph, bool training) : builder_(graph), training_(training) {}
  ir::Builder& builder() { return builder_; }
  bool training() const { return training_; }

  Tensor input(const std::string& name, DType dtype, const ir::Sizes& sizes);
  Tensor operator()(const Parameter& parameter);
  /// From here on the buffer has this value; written back when the program ends.
  void update(const Parameter& buffer, Tensor value);
  /// In order of first use.
  const std::vector<const Parameter*>& used() const { return used_; }

 private:
  ir::Builder builder_;
  bool training_;
  std::map<const Parameter*, ir::Value*> inputs_;  // looked up only
  std::vector<const Parameter*> used_;
};

class Module {
 public:
  Module() = default;
  Module(Module& parent, std::string name);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  /// Own ones first, then those of children, in order of construction.
  std::vector<const Parameter*> parameters() const;
  std::string qualified_name() const;
  int64_t parameter_count() const;

 private:
  friend class Parameter;
  Module* parent_ = nullptr;
  std::string name_;
  std::vector<const Module*> children_;
  std::vector<const Parameter*> own_;
};

}  // namespace tandem::nn
