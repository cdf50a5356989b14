// Sums of products of packed integers. Where the processor multiplies bytes (VNNI), one instruction
// a register takes four products a lane, exactly: vpdpbusd does not saturate. The older vpmaddubsw
// does, at 16 bits, which is what dot4_saturating says; its halves are then added in pairs. Halves
// are multiplied by vpmaddwd, which every AVX2 has, and added. What is wider than a register goes
// register by register, what is narrower is padded with lanes that nobody reads. Bytes without VNNI
// are taken apart by shifts: right, and slow.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "codegen/emit.h"

namespace tandem::codegen {

using llvm::Value;
using loop::Combiner;

namespace {

unsigned lanes_of(Value* v) {
  const llvm::FixedVectorType* type = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return type == nullptr ? 1 : type->getNumElements();
}

llvm::Intrinsic::ID bytes_instruction(unsigned lanes) {
  if (lanes == 16) return llvm::Intrinsic::x86_avx512_vpdpbusd_512;
  return lanes == 8 ? llvm::Intrinsic::x86_avx512_vpdpbusd_256
                    : llvm::Intrinsic::x86_avx512_vpdpbusd_128;
}

llvm::Intrinsic::ID halves_instruction(unsigned lanes) {
  if (lanes == 16) return llvm::Intrinsic::x86_avx512_pmaddw_d_512;
  return lanes == 8 ? llvm::Intrinsic::x86_avx2_pmadd_wd : llvm::Intrinsic::x86_sse2_pmadd_wd;
}

llvm::Intrinsic::ID saturating_instruction(unsigned lanes) {
  if (lanes == 16) return llvm::Intrinsic::x86_avx512_pmaddubs_w_512;
  return lanes == 8 ? llvm::Intrinsic::x86_avx2_pmadd_ub_sw
                    : llvm::Intrinsic::x86_ssse3_pmadd_ub_sw_128;
}

Value* saturated(llvm::IRBuilder<>& ir, Value* x) {
  const auto number = [&](int limit) {
    return llvm::ConstantInt::get(x->getType(), static_cast<uint64_t>(int64_t{limit}), true);
  };
  Value* const least = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, number(INT16_MIN));
  return ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, least, number(INT16_MAX));
}

/// Sum of the parts' products, in arithmetic that any processor has.
Value* product_by_shifts(llvm::IRBuilder<>& ir, Combiner combiner, Value* a, Value* b, Value* sum) {
  const bool bytes = loop::multiplies_bytes(combiner);
  const unsigned width = bytes ? 8 : 16;
  const auto lowest = [&](Value* v, unsigned at, bool is_signed) {
    Value* top = ir.CreateShl(v, 32 - width - at);
    return is_signed ? ir.CreateAShr(top, 32 - width) : ir.CreateLShr(top, 32 - width);
  };
  llvm::SmallVector<Value*, 4> products;
  for (unsigned at = 0; at < 32; at += width)
    products.push_back(ir.CreateMul(lowest(a, at, !bytes), lowest(b, at, true)));
  if (combiner == Combiner::dot4_saturating)
    products = {saturated(ir, ir.CreateAdd(products[0], products[1])),
                saturated(ir, ir.CreateAdd(products[2], products[3]))};
  for (Value* const each : products) sum = ir.CreateAdd(sum, each);
  return sum;
}

}  // namespace

bool Emitter::has_feature(std::string_view name) const {
  return kernel_.target.find("+" + std::string(name)) != std::string::npos;
}

namespace {

/// Bytes of four values a lane, lane by lane: one permutation of a register that the four fill.
/// The order is hidden from LLVM, which would take a shuffle that it knows apart into nine.
Value* interleaved_bytes(llvm::IRBuilder<>& ir, const std::vector<Value*>& parts, unsigned from) {
  constexpr unsigned kLanes = 16;
  llvm::SmallVector<Value*, 4> quarters;
  for (Value* part : parts)
    quarters.push_back(ir.CreateShuffleVector(part, llvm::createSequentialMask(from, kLanes, 0)));
  llvm::SmallVector<uint8_t, 4 * kLanes> order;
  for (unsigned lane = 0; lane < kLanes; ++lane)
    for (unsigned part = 0; part < 4; ++part)
      order.push_back(static_cast<uint8_t>(part * kLanes + lane));
  Value* bytes = llvm::concatenateVectors(ir, quarters);
  llvm::Type* fenced = llvm::FixedVectorType::get(ir.getFloatTy(), kLanes);
  Value* known = llvm::ConstantDataVector::get(ir.getContext(), order);
  Value* hidden = ir.CreateArithmeticFence(ir.CreateBitCast(known, fenced), fenced);
  Value* moved = ir.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_qi_512, {},
                                    {bytes, ir.CreateBitCast(hidden, bytes->getType())});
  return ir.CreateBitCast(moved, llvm::FixedVectorType::get(ir.getInt32Ty(), kLanes));
}

}  // namespace

/// The parts side by side, the first in the lowest bits. Bytes of whole registers are interleaved
/// where the processor permutes them: widening, shifting and joining each of four takes ten
/// instructions.
Value* Emitter::pack(const loop::Scalar& val, const std::vector<Value*>& parts) {
  const unsigned lanes = lanes_of(parts[0]);
  const uint64_t width = static_cast<uint64_t>(size_of(val.args[0]->dtype)) * 8;
  if (width == 8 && lanes > 1 && lanes % 16 == 0 && has_feature("avx512vbmi")) {
    llvm::SmallVector<Value*, 4> registers;
    for (unsigned at = 0; at < lanes; at += 16)
      registers.push_back(interleaved_bytes(ir_, parts, at));
    return llvm::concatenateVectors(ir_, registers);
  }
  llvm::Type* type = ir_.getInt32Ty();
  if (has_lanes(parts[0])) type = llvm::FixedVectorType::get(type, lanes);
  Value* packed = nullptr;
  for (size_t i = 0; i < parts.size(); ++i) {
    Value* part = ir_.CreateShl(ir_.CreateZExt(parts[i], type), i * width);
    packed = packed == nullptr ? part : ir_.CreateOr(packed, part);
  }
  return packed;
}

Value* Emitter::packed_product(Combiner combiner, Value* a, Value* b, Value* sum) {
  if (combiner == Combiner::dot_bf16) return add_bf16_products(a, b, sum);
  const bool lacks_instruction =
      combiner == Combiner::dot4 && !has_feature("avx512vnni") && !has_feature("avxvnni");
  if (lacks_instruction || !has_lanes(sum)) return product_by_shifts(ir_, combiner, a, b, sum);
  const unsigned lanes = lanes_of(sum);
  const unsigned most = has_feature("avx512f") && has_feature("avx512bw") ? 16 : 8;
  if (lanes <= most) return product_by_registers(combiner, a, b, sum);
  llvm::SmallVector<Value*, 8> parts;
  for (unsigned at = 0; at < lanes; at += most) {
    const llvm::SmallVector<int, 16> own = llvm::createSequentialMask(at, most, 0);
    parts.push_back(product_by_registers(combiner, ir_.CreateShuffleVector(a, own),
                                         ir_.CreateShuffleVector(b, own),
                                         ir_.CreateShuffleVector(sum, own)));
  }
  return llvm::concatenateVectors(ir_, parts);
}

namespace {

/// What is too small for a normal f32 is a zero of its sign.
Value* or_zero(llvm::IRBuilder<>& ir, Value* x) {
  Value* const size = ir.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Value* const least =
      llvm::ConstantFP::get(x->getType(), static_cast<double>(std::numeric_limits<float>::min()));
  Value* const zero = ir.CreateBinaryIntrinsic(llvm::Intrinsic::copysign,
                                               llvm::Constant::getNullValue(x->getType()), x);
  return ir.CreateSelect(ir.CreateFCmpOLT(size, least), zero, x);
}

/// What the instruction does, where there is none: a kernel is no promise of the machine.
Value* bf16_products_in_f32(llvm::IRBuilder<>& ir, Value* a, Value* b, Value* sum) {
  llvm::Type* const floats = sum->getType();
  llvm::Type* words = ir.getInt32Ty();
  if (llvm::VectorType* const lanes = llvm::dyn_cast<llvm::VectorType>(floats))
    words = llvm::VectorType::getInteger(lanes);
  const auto half = [&](Value* pair, bool is_second) {
    Value* const word = ir.CreateBitCast(pair, words);
    Value* const own =
        is_second ? ir.CreateAnd(word, uint64_t{0xffff0000}) : ir.CreateShl(word, 16);
    return or_zero(ir, ir.CreateBitCast(own, floats));
  };
  sum = or_zero(ir, sum);
  for (const bool is_second : {true, false})
    sum = or_zero(ir, ir.CreateIntrinsic(llvm::Intrinsic::fma, {floats},
                                         {half(a, is_second), half(b, is_second), sum}));
  return sum;
}

}  // namespace

/// Of registers of 16 lanes; fewer are filled up.
Value* Emitter::add_bf16_products(Value* a, Value* b, Value* sum) {
  if (!has_feature("avx512bf16") || !has_feature("avx512f"))
    return bf16_products_in_f32(ir_, a, b, sum);
  constexpr unsigned kLanes = 16;
  const unsigned lanes = has_lanes(sum) ? lanes_of(sum) : 1;
  llvm::Type* pairs = llvm::FixedVectorType::get(ir_.getBFloatTy(), 2 * kLanes);
  llvm::SmallVector<Value*, 8> parts;
  for (unsigned at = 0; at < lanes; at += kLanes) {
    const unsigned count = std::min(kLanes, lanes - at);
    const llvm::SmallVector<int, 16> own = llvm::createSequentialMask(at, count, kLanes - count);
    const auto part = [&](Value* all) {
      if (!has_lanes(all)) all = ir_.CreateVectorSplat(1, all);
      return lanes == kLanes ? all : ir_.CreateShuffleVector(all, own);
    };
    Value* added = ir_.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
        {part(sum), ir_.CreateBitCast(part(a), pairs), ir_.CreateBitCast(part(b), pairs)});
    parts.push_back(count == kLanes
                        ? added
                        : ir_.CreateShuffleVector(added, llvm::createSequentialMask(0, count, 0)));
  }
  Value* all = llvm::concatenateVectors(ir_, parts);
  return has_lanes(sum) ? all : ir_.CreateExtractElement(all, uint64_t{0});
}

/// Of at most one register.
Value* Emitter::product_by_registers(Combiner combiner, Value* a, Value* b, Value* sum) {
  const unsigned lanes = lanes_of(sum);
  if (lanes < 4) {
    llvm::SmallVector<int, 4> wide = llvm::createSequentialMask(0, lanes, 4 - lanes);
    Value* padded =
        product_by_registers(combiner, ir_.CreateShuffleVector(a, wide),
                             ir_.CreateShuffleVector(b, wide), ir_.CreateShuffleVector(sum, wide));
    return ir_.CreateShuffleVector(padded, llvm::createSequentialMask(0, lanes, 0));
  }
  if (combiner == Combiner::dot4)
    return ir_.CreateIntrinsic(bytes_instruction(lanes), {}, {sum, a, b});
  llvm::Type* const halves = llvm::FixedVectorType::get(ir_.getInt16Ty(), lanes * 2);
  Value* one = nullptr;
  Value* other = nullptr;
  if (combiner == Combiner::dot4_saturating) {
    llvm::Type* const bytes = llvm::FixedVectorType::get(ir_.getInt8Ty(), lanes * 4);
    one = ir_.CreateIntrinsic(saturating_instruction(lanes), {},
                              {ir_.CreateBitCast(a, bytes), ir_.CreateBitCast(b, bytes)});
    other = llvm::ConstantInt::get(halves, 1);
  } else {
    one = ir_.CreateBitCast(a, halves);
    other = ir_.CreateBitCast(b, halves);
  }
  return ir_.CreateAdd(sum, ir_.CreateIntrinsic(halves_instruction(lanes), {}, {one, other}));
}

}  // namespace tandem::codegen
