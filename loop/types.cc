// Which operand types each opcode takes. Arithmetic runs in compute types: a 16-bit float is cast
// to f32 first and back after, so that its rounding is written down; only moves (load, select,
// check, casts) and comparisons take it as it is. Bool takes logic and comparisons, no arithmetic.
#include "loop/types.h"

namespace tandem::loop {
namespace {

enum class Domain : uint8_t { any, floats, numbers, integers, bits, boolean };

bool is_in(Domain domain, DType type) {
  bool computes = type == compute_type(type);
  switch (domain) {
    case Domain::any: return true;
    case Domain::floats: return is_float(type) && computes;
    case Domain::numbers: return type != DType::boolean && computes;
    case Domain::integers: return is_int(type);
    case Domain::bits: return !is_float(type);
    case Domain::boolean: return type == DType::boolean;
  }
  return false;
}

Domain domain_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::neg:
    case Opcode::abs:
    case Opcode::add:
    case Opcode::sub:
    case Opcode::mul:
    case Opcode::div:
    case Opcode::fmod:
    case Opcode::pow:
    case Opcode::fma: return Domain::numbers;
    case Opcode::logical_not: return Domain::boolean;
    case Opcode::bit_not:
    case Opcode::bit_and:
    case Opcode::bit_or:
    case Opcode::bit_xor: return Domain::bits;
    case Opcode::floor_div:
    case Opcode::shift_left:
    case Opcode::shift_right: return Domain::integers;
    case Opcode::min:
    case Opcode::max:
    case Opcode::eq:
    case Opcode::ne:
    case Opcode::lt:
    case Opcode::le:
    case Opcode::gt:
    case Opcode::ge: return Domain::any;
    default:
      return opcode >= Opcode::sqrt && opcode <= Opcode::trunc ? Domain::floats : Domain::any;
  }
}

size_t arity_of(Opcode opcode) {
  if (opcode >= Opcode::neg && opcode <= Opcode::bit_not) return 1;
  if (opcode >= Opcode::add && opcode <= Opcode::ge) return 2;
  switch (opcode) {
    case Opcode::fma:
    case Opcode::select:
    case Opcode::philox: return 3;
    case Opcode::check: return 2;
    case Opcode::cast:
    case Opcode::bitcast: return 1;
    default: return 0;
  }
}

std::string name(DType type) { return std::string(name_of(type)); }

std::string operator_problem(Val value) {
  const std::vector<Val>& args = value->args;
  bool compares = value->opcode >= Opcode::eq && value->opcode <= Opcode::ge;
  for (Val arg : args) {
    if (arg->dtype != args[0]->dtype)
      return "operands are " + name(args[0]->dtype) + " and " + name(arg->dtype);
    if (!is_in(domain_of(value->opcode), arg->dtype)) return "does not take " + name(arg->dtype);
  }
  DType result = compares ? DType::boolean : args[0]->dtype;
  return value->dtype == result ? "" : "result is " + name(value->dtype) + ", not " + name(result);
}

std::string select_problem(Val value) {
  if (value->args[0]->dtype != DType::boolean) return "the condition is no bool";
  bool equal = value->args[1]->dtype == value->dtype && value->args[2]->dtype == value->dtype;
  return equal ? "" : "arms and result differ in type";
}

std::string philox_problem(Val value) {
  for (Val arg : value->args)
    if (arg->dtype != DType::i64) return "seed, stream and element are i64";
  return value->dtype == DType::i32 ? "" : "the result is i32";
}

std::string check_problem(Val value) {
  if (value->args[0]->dtype != DType::boolean) return "the condition is no bool";
  return value->args[1]->dtype == value->dtype ? "" : "value and result differ in type";
}

std::string pack_problem(Val value) {
  for (Val arg : value->args)
    if (!is_int(arg->dtype) || arg->dtype != value->args[0]->dtype)
      return "parts are integers of one type";
  const bool fills = !value->args.empty() &&
                     size_of(value->args[0]->dtype) * static_cast<int64_t>(value->args.size()) == 4;
  if (!fills || size_of(value->args[0]->dtype) > 2) return "parts do not fill 32 bits";
  return value->dtype == DType::i32 ? "" : "the result is i32";
}

}  // namespace

std::string type_problem(Val value) {
  switch (value->opcode) {
    case Opcode::constant:
    case Opcode::local: return "";
    case Opcode::index: return value->dtype == DType::i64 ? "" : "an index is i64";
    case Opcode::load:
      return value->masked && value->args[0]->dtype != DType::boolean ? "the mask is no bool" : "";
    case Opcode::element: return "stands for memory that has no address yet";
    case Opcode::pack: return pack_problem(value);
    default: break;
  }
  if (value->args.size() != arity_of(value->opcode)) return "wrong number of operands";
  switch (value->opcode) {
    case Opcode::select: return select_problem(value);
    case Opcode::philox: return philox_problem(value);
    case Opcode::check: return check_problem(value);
    case Opcode::cast: return "";
    case Opcode::bitcast:
      return size_of(value->args[0]->dtype) == size_of(value->dtype) ? "" : "sizes differ";
    default: return operator_problem(value);
  }
}

}  // namespace tandem::loop
