// Values of parameters, buffers and optimizer state: named arrays that programs read and update in
// place.
#pragma once

#include <map>
#include <string>

#include "nn/module.h"
#include "runtime/array.h"

namespace tandem {

class State {
 public:
  /// Every parameter and buffer of the module at its initial value; the same seed gives the same
  /// values.
  static State initial(const nn::Module& module, uint64_t seed);

  /// Parameters and buffers of the module alone, without what an optimizer keeps; shares the
  /// arrays.
  State weights_of(const nn::Module& module) const;

  /// UserError when there is no such name.
  const runtime::Array& at(const std::string& name) const;
  bool has(const std::string& name) const { return arrays_.count(name) != 0; }
  void set(const std::string& name, runtime::Array array) {
    arrays_.insert_or_assign(name, std::move(array));
  }
  /// By name, in order.
  const std::map<std::string, runtime::Array>& arrays() const { return arrays_; }

  /// safetensors files. load replaces values of known names; UserError names what is missing,
  /// unknown or of another type, and then changes nothing.
  void save(const std::string& path) const;
  void load(const std::string& path);

 private:
  std::map<std::string, runtime::Array> arrays_;
};

}  // namespace tandem
