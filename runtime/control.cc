// Problem: how often a body runs is known only while it runs. Approach: what is carried are arrays
// of the step before, in blocks of their own, and go from hand to hand; results are written to
// their places in the caller's frame, a row at a time where they are rows, and copied to them where
// the body has no memory of its own for them (an operand that it hands through). Operands are made
// contiguous once, before the first step. Arrays of the caller are borrowed, and nothing outlives
// the call that shows them.
#include "runtime/control.h"

#include <utility>

#include "base/diagnostic.h"
#include "base/interrupt.h"
#include "runtime/execution.h"

namespace tandem::runtime {
namespace {

/// splitmix64: neighbours have nothing in common.
uint64_t mixed(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

void check_same(const abi::Control& control, const Array& result, const Array& place) {
  if (std::ranges::equal(result.sizes(), place.sizes()) && result.dtype() == place.dtype()) return;
  throw UserError("[" + control.label + "] a body gives " + result.describe() + ", and " +
                  place.describe() + " is needed: sizes must not depend on the step");
}

void put(const abi::Control& control, const Result& result, const Array& place) {
  const Array& array = std::get<Array>(result);
  check_same(control, array, place);
  if (array.numel() > 0 && array.raw() != place.raw()) place.copy_from(array);
}

using Places = std::vector<std::optional<Array>>;

/// Runs the frame once, for results that lie at `places`.
void run_once(const abi::Control& control, Frame& frame, std::span<Array> args,
              std::span<const Array> places) {
  for (size_t i = 0; i < args.size(); ++i) frame.set(i, std::move(args[i]));
  const std::vector<Result> given = frame.run(0, Places(places.begin(), places.end()));
  for (size_t i = 0; i < places.size(); ++i) put(control, given[i], places[i]);
}

Array row_of(const Array& rows, int64_t number) {
  const int64_t stride = rows.strides()[0];
  return rows.as_strided(rows.sizes().subspan(1), rows.strides().subspan(1), number * stride);
}

bool holds(const Array& flag) { return *flag.data<bool>(); }

void run_branch(const abi::Control& control, std::span<Frame> frames, std::vector<Array> args,
                std::span<const Array> results) {
  run_once(control, frames[holds(args[0]) ? 0 : 1], std::span(args).subspan(1), results);
}

void run_repeat(const abi::Control& control, std::span<Frame> frames, std::vector<Array> args,
                std::span<const Array> results) {
  for (Frame& frame : frames)
    for (size_t i = 0; i < args.size(); ++i) frame.set(i, args[i]);
  for (int64_t step = 0;; ++step) {
    poll_interrupt();
    if (!holds(std::get<Array>(frames[0].run(step).at(0)))) break;
    std::vector<Result> given = frames[1].run(step);
    for (size_t i = 0; i < given.size(); ++i) {
      args[i] = std::get<Array>(std::move(given[i]));
      check_same(control, args[i], results[i]);
      for (Frame& frame : frames) frame.set(i, args[i]);
    }
  }
  for (size_t i = 0; i < results.size(); ++i)
    if (args[i].numel() > 0) results[i].copy_from(args[i]);
}

void check_rows(const abi::Control& control, std::span<const Array> arrays, int64_t steps) {
  for (const Array& array : arrays)
    if (array.rank() == 0 || array.sizes()[0] != steps)
      throw UserError("[" + control.label + "] " + array.describe() + " has not " +
                      std::to_string(steps) + " rows, which are the steps");
}

void run_rows(const abi::Control& control, Frame& frame, std::vector<Array> args,
              std::span<const Array> results) {
  const size_t carried = control.carried;
  const size_t operands = carried + control.rows;
  if (args[carried].rank() == 0) check_rows(control, {&args[carried], 1}, 0);
  const int64_t steps = args[carried].sizes()[0];
  check_rows(control, std::span(args).subspan(carried, control.rows), steps);
  check_rows(control, results.subspan(carried), steps);
  for (size_t i = 0; i < carried; ++i) frame.set(i, args[i]);
  for (size_t i = operands; i < args.size(); ++i) frame.set(i, args[i]);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t row = control.reverse ? steps - 1 - step : step;
    for (size_t i = carried; i < operands; ++i) frame.set(i, row_of(args[i], row));
    Places places(carried);
    for (size_t i = carried; i < results.size(); ++i) places.emplace_back(row_of(results[i], row));
    std::vector<Result> given = frame.run(row, places);
    for (size_t i = carried; i < given.size(); ++i) put(control, given[i], *places[i]);
    for (size_t i = 0; i < carried; ++i) {
      args[i] = std::get<Array>(std::move(given[i]));
      check_same(control, args[i], results[i]);
      frame.set(i, args[i]);
    }
  }
  for (size_t i = 0; i < carried; ++i)
    if (args[i].numel() > 0) results[i].copy_from(args[i]);
}

/// Runs the loop, and gives what each step gave behind what is carried.
std::vector<std::vector<Array>> kept_by_steps(std::span<Frame> frames, std::vector<Array> args,
                                              size_t carried) {
  for (size_t i = 0; i < args.size(); ++i)
    for (Frame& frame : frames) frame.set(i, args[i]);
  std::vector<std::vector<Array>> kept;
  for (int64_t step = 0;; ++step) {
    poll_interrupt();
    if (!holds(std::get<Array>(frames[0].run(step).at(0)))) return kept;
    std::vector<Result> given = frames[1].run(step);
    for (size_t i = 0; i < carried; ++i)
      for (Frame& frame : frames) frame.set(i, std::get<Array>(given[i]));
    std::vector<Array>& own = kept.emplace_back();
    for (size_t i = carried; i < given.size(); ++i)
      own.push_back(std::get<Array>(std::move(given[i])));
  }
}

void run_repeat_backward(const abi::Control& control, std::span<Frame> frames,
                         std::vector<Array> args, std::span<const Array> results) {
  const size_t given = args.size() - results.size();
  const size_t carried = control.carried;
  std::vector<Array> tangents(args.begin() + static_cast<std::ptrdiff_t>(given), args.end());
  args.resize(given);
  std::vector<std::vector<Array>> kept = kept_by_steps(frames.first(2), args, carried);
  Frame& gradient = frames[2];
  for (; !kept.empty(); kept.pop_back()) {
    size_t next = 0;
    for (Array& tangent : tangents) gradient.set(next++, std::move(tangent));
    for (Array& array : kept.back()) gradient.set(next++, std::move(array));
    for (size_t i = carried; i < given; ++i) gradient.set(next++, args[i]);
    std::vector<Result> made = gradient.run(static_cast<int64_t>(kept.size()) - 1);
    for (size_t i = 0; i < tangents.size(); ++i) {
      tangents[i] = std::get<Array>(std::move(made[i]));
      check_same(control, tangents[i], results[i]);
    }
  }
  for (size_t i = 0; i < results.size(); ++i)
    if (tangents[i].numel() > 0) results[i].copy_from(tangents[i]);
}

}  // namespace

uint64_t step_seed(uint64_t seed, int64_t stream, size_t callee) {
  return mixed(mixed(seed) + static_cast<uint64_t>(stream) * 4 + callee);
}

Frame::Frame(LoadedProgram& body, const abi::Callee& callee, std::span<const int64_t> sizes,
             uint64_t seed)
    : body_(&body),
      takes_seed_(callee.takes_seed),
      seed_(seed),
      arguments_(body.program().inputs.size()),
      execution_(body.take_execution(nullptr)) {
  execution_->keep_frame(true);
  const size_t first = arguments_.size() - sizes.size() - (takes_seed_ ? 1 : 0);
  for (size_t i = 0; i < sizes.size(); ++i) arguments_[first + i] = sizes[i];
}

Frame::Frame(Frame&&) noexcept = default;

// An execution that has thrown goes with whatever state it was in.
Frame::~Frame() {
  if (execution_ == nullptr) return;
  execution_->keep_frame(false);
  body_->give_execution(std::move(execution_));
}

void Frame::set(size_t number, Array tensor) { arguments_[number] = std::move(tensor); }

std::vector<Result> Frame::run(int64_t step, std::span<const std::optional<Array>> places) {
  if (takes_seed_)
    arguments_.back() = static_cast<int64_t>(mixed(seed_ + static_cast<uint64_t>(step)) >> 1);
  std::unique_ptr<Execution> execution = std::move(execution_);
  std::vector<Result> results = execution->run(arguments_, {}, places);
  execution_ = std::move(execution);
  return results;
}

void run_control(const abi::Control& control, std::span<Frame> frames, std::vector<Array> args,
                 std::span<const Array> results) {
  for (Array& array : args) array = array.contiguous();
  switch (control.kind) {
    case abi::Control::Kind::branch: return run_branch(control, frames, std::move(args), results);
    case abi::Control::Kind::repeat: return run_repeat(control, frames, std::move(args), results);
    case abi::Control::Kind::repeat_backward:
      return run_repeat_backward(control, frames, std::move(args), results);
    case abi::Control::Kind::rows: return run_rows(control, frames[0], std::move(args), results);
    case abi::Control::Kind::call: return run_once(control, frames[0], args, results);
  }
}

}  // namespace tandem::runtime
