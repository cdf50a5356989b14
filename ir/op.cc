// Access to a call's arguments by name, with the errors a user would see when one does not fit.
#include "ir/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/diagnostic.h"
#include "ir/graph.h"

namespace tandem::ir {
namespace {

UserError unknown(const Op& op, std::string_view what, const std::string& text,
                  std::vector<std::string> names) {
  return UserError(Diagnostic{
      fmt::format("[{}] {} must be known when compiling: {}", op.schema.full_name(), what, text),
      "", std::move(names)});
}

}  // namespace

Op& OpTable::add(Op op) {
  ops_.push_back(std::move(op));
  Op& added = ops_.back();
  bool is_new = by_name_.emplace(added.name(), &added).second;
  TD_CHECK(is_new) << added.name() << " is registered twice";
  return added;
}

const Op* OpTable::find(std::string_view name) const {
  std::string dotted(name);
  size_t colons = dotted.find("::");
  if (colons != std::string::npos) dotted.replace(colons, 2, ".");
  std::map<std::string, const Op*, std::less<>>::const_iterator it = by_name_.find(dotted);
  if (it == by_name_.end() && dotted.ends_with(".default"))
    it = by_name_.find(dotted.substr(0, dotted.size() - 8));
  return it == by_name_.end() ? nullptr : it->second;
}

const Arg& Call::arg(std::string_view name) const {
  int number = op_->schema.find(name);
  TD_CHECK(number >= 0) << op_->name() << " has no parameter " << name;
  return (*args_)[number];
}

bool Call::has(std::string_view name) const {
  int number = op_->schema.find(name);
  return number >= 0 && !std::holds_alternative<None>((*args_)[number]);
}

Value* Call::value(std::string_view name) const {
  Value* const* value = std::get_if<Value*>(&arg(name));
  return value == nullptr ? nullptr : *value;
}

const Type& Call::type(std::string_view name) const {
  const Value* found = value(name);
  if (found == nullptr) fail(fmt::format("{} must be a tensor", name));
  return found->type;
}

const Values& Call::values(std::string_view name) const {
  static const Values kNone;
  const Values* found = std::get_if<Values>(&arg(name));
  return found == nullptr ? kNone : *found;
}

sym::Expr Call::integer(std::string_view name) const {
  const Arg& found = arg(name);
  if (const sym::Expr* expr = std::get_if<sym::Expr>(&found)) return *expr;
  if (const bool* flag = std::get_if<bool>(&found)) return *flag ? 1 : 0;
  fail(fmt::format("{} must be an integer, not {}", name, to_string(found)));
}

int64_t Call::constant(std::string_view name) const {
  const sym::Expr number = integer(name);
  if (!number.constant()) fail_unknown(std::string(name), number);
  return *number.constant();
}

const Ints& Call::ints(std::string_view name) const {
  static const Ints kNone;
  const Ints* found = std::get_if<Ints>(&arg(name));
  return found == nullptr ? kNone : *found;
}

std::vector<int64_t> Call::constants(std::string_view name) const {
  std::vector<int64_t> numbers;
  for (const sym::Expr& expr : ints(name)) {
    if (!expr.constant()) fail_unknown(std::string(name), expr);
    numbers.push_back(*expr.constant());
  }
  return numbers;
}

bool Call::boolean(std::string_view name) const {
  const Arg& found = arg(name);
  if (const bool* flag = std::get_if<bool>(&found)) return *flag;
  return !std::holds_alternative<None>(found) && integer(name) != sym::Expr(0);
}

double Call::floating(std::string_view name) const {
  const Arg& found = arg(name);
  if (const double* number = std::get_if<double>(&found)) return *number;
  if (std::holds_alternative<Value*>(found))
    throw unknown(*op_, name, to_string(found), {std::get<Value*>(found)->name});
  return static_cast<double>(constant(name));
}

std::string Call::string(std::string_view name) const {
  const std::string* text = std::get_if<std::string>(&arg(name));
  return text == nullptr ? "" : *text;
}

DType Call::dtype(std::string_view name, DType otherwise) const {
  const DType* found = std::get_if<DType>(&arg(name));
  return found == nullptr ? otherwise : *found;
}

int64_t Call::wrapped(int64_t dim, int64_t rank) const {
  int64_t bound = rank == 0 ? 1 : rank;
  if (dim < -bound || dim >= bound)
    fail(fmt::format("dimension {} is out of range [{}, {}]", dim, -bound, bound - 1));
  return dim < 0 ? dim + bound : dim;
}

int64_t Call::dim(std::string_view name, int64_t rank) const {
  return wrapped(constant(name), rank);
}

std::vector<int64_t> Call::dims(std::string_view name, int64_t rank) const {
  if (std::holds_alternative<sym::Expr>(arg(name))) return {wrapped(constant(name), rank)};
  std::vector<int64_t> dims;
  for (int64_t number : constants(name)) {
    int64_t dim = wrapped(number, rank);
    if (std::find(dims.begin(), dims.end(), dim) != dims.end())
      fail(fmt::format("dimension {} appears twice", number));
    dims.push_back(dim);
  }
  if (dims.empty())
    for (int64_t dim = 0; dim < rank; ++dim) dims.push_back(dim);
  return dims;
}

Value* Call::result(size_t i) const {
  TD_CHECK(results_ != nullptr && i < results_->size()) << op_->name() << " has no result " << i;
  return (*results_)[i];
}

void Call::fail_unknown(const std::string& what, sym::Expr size) const {
  std::vector<std::string> names;
  for (const sym::Expr& symbol : sym::free_symbols(size)) names.push_back(symbol.name());
  throw unknown(*op_, what, sym::to_string(size), std::move(names));
}

void Call::fail(const std::string& text) const {
  throw UserError(fmt::format("[{}] {}", op_->schema.full_name(), text));
}

std::string Call::describe(std::string_view name) const {
  const Arg& found = arg(name);
  if (Value* const* value = std::get_if<Value*>(&found))
    return fmt::format("{} {}", name, to_string((*value)->type));
  return fmt::format("{} {}", name, to_string(found));
}

size_t list_length(const Arg& list) {
  if (const Values* values = std::get_if<Values>(&list)) return values->size();
  if (const Floats* floats = std::get_if<Floats>(&list)) return floats->size();
  return std::get<Ints>(list).size();
}

Arg list_element(const Arg& list, size_t i) {
  if (const Values* values = std::get_if<Values>(&list)) return (*values)[i];
  if (const Floats* floats = std::get_if<Floats>(&list)) return (*floats)[i];
  return std::get<Ints>(list)[i];
}

std::string to_string(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", number);  // shortest form that reads back
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

namespace {

struct ArgPrinter {
  std::string operator()(const None&) const { return "none"; }
  std::string operator()(const Value* value) const { return "%" + value->name; }
  std::string operator()(const Values& values) const {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i)
      text += (i ? ", " : "") + (values[i] == nullptr ? "none" : (*this)(values[i]));
    return text + "]";
  }
  std::string operator()(const sym::Expr& expr) const { return sym::to_string(expr); }
  std::string operator()(const Ints& ints) const { return to_string(ints); }
  std::string operator()(double number) const { return to_string(number); }
  std::string operator()(const Floats& numbers) const {
    std::string text = "[";
    for (size_t i = 0; i < numbers.size(); ++i) text += (i ? ", " : "") + to_string(numbers[i]);
    return text + "]";
  }
  std::string operator()(bool flag) const { return flag ? "true" : "false"; }
  std::string operator()(const std::string& text) const { return "\"" + text + "\""; }
  std::string operator()(DType dtype) const { return std::string(name_of(dtype)); }
};

}  // namespace

std::string to_string(const Arg& arg) { return std::visit(ArgPrinter{}, arg); }

}  // namespace tandem::ir
