// The only place that knows oneDNN: its C interface opened at the first use, and owners of its
// objects.
#pragma once

#include <dnnl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "runtime/signals.h"

namespace tandem::runtime {

/// Entries of libdnnl.so.2. The library has 40 MB; a program of emitted kernels never opens it.
struct OneDnn {
  decltype(&dnnl_set_max_cpu_isa) set_max_cpu_isa;
  decltype(&dnnl_engine_create) engine_create;
  decltype(&dnnl_stream_create) stream_create;
  decltype(&dnnl_stream_destroy) stream_destroy;
  decltype(&dnnl_memory_desc_init_by_strides) memory_desc_init_by_strides;
  decltype(&dnnl_memory_desc_init_by_tag) memory_desc_init_by_tag;
  decltype(&dnnl_memory_desc_get_size) memory_desc_get_size;
  decltype(&dnnl_memory_desc_equal) memory_desc_equal;
  decltype(&dnnl_memory_create) memory_create;
  decltype(&dnnl_memory_destroy) memory_destroy;
  decltype(&dnnl_memory_set_data_handle) memory_set_data_handle;
  decltype(&dnnl_primitive_attr_create) primitive_attr_create;
  decltype(&dnnl_primitive_attr_destroy) primitive_attr_destroy;
  decltype(&dnnl_primitive_attr_set_scratchpad_mode) primitive_attr_set_scratchpad_mode;
  decltype(&dnnl_primitive_attr_set_fpmath_mode) primitive_attr_set_fpmath_mode;
  decltype(&dnnl_primitive_attr_set_post_ops) primitive_attr_set_post_ops;
  decltype(&dnnl_post_ops_create) post_ops_create;
  decltype(&dnnl_post_ops_destroy) post_ops_destroy;
  decltype(&dnnl_post_ops_append_sum) post_ops_append_sum;
  decltype(&dnnl_matmul_desc_init) matmul_desc_init;
  decltype(&dnnl_dilated_convolution_forward_desc_init) convolution_forward_desc_init;
  decltype(&dnnl_dilated_convolution_backward_data_desc_init) convolution_backward_data_desc_init;
  decltype(&dnnl_dilated_convolution_backward_weights_desc_init)
      convolution_backward_weights_desc_init;
  decltype(&dnnl_reorder_primitive_desc_create) reorder_primitive_desc_create;
  decltype(&dnnl_primitive_desc_create) primitive_desc_create;
  decltype(&dnnl_primitive_desc_destroy) primitive_desc_destroy;
  decltype(&dnnl_primitive_desc_query) primitive_desc_query;
  decltype(&dnnl_primitive_desc_query_md) primitive_desc_query_md;
  decltype(&dnnl_primitive_create) primitive_create;
  decltype(&dnnl_primitive_destroy) primitive_destroy;
  decltype(&dnnl_primitive_execute) primitive_execute;
  dnnl_engine_t engine;
};

/// Opens the library once. UserError when it is not installed.
const OneDnn& onednn();
/// Whether `onednn` was called: an artifact without library calls leaves it closed.
bool onednn_is_open();

/// While alive, oneDNN on this thread sees a team of one, and no signal comes to a helper of the
/// team. From the caller Execution keeps them, once for all of a call's blocks. A signal during an
/// f32 product with AVX2 (2.6.3) damages the heap: its code seems to use the stack where a
/// handler's frame comes to lie.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int saved_;
  std::optional<WithoutSignals> signals_;
};

/// To be called by a thread before and after large products of gemm:jit, so that the buffers into
/// which they pack their factors lie at one place of its heap, not each behind the one before.
/// posix_memalign cuts a block's ends off and frees them; glibc keeps seven freed blocks of a size
/// for their thread, and an end among them parts the free memory on its two sides, which is then
/// too short for the next buffer. This gives all that are kept back, and other blocks take their
/// places, so that the next ends go back at once. Some 2 us.
void give_back_ends();

dnnl_data_type_t onednn_type(DType dtype);
/// Strides in elements.
dnnl_memory_desc_t strided_desc(DType dtype, std::span<const int64_t> sizes,
                                std::span<const int64_t> strides);
/// The layout is oneDNN's choice.
dnnl_memory_desc_t any_desc(DType dtype, std::span<const int64_t> sizes);

/// The same text for the same layout of the same sizes and type.
std::string text_of(const dnnl_memory_desc_t& desc);

/// A primitive made for one thread with strict f32 arithmetic and a scratchpad of the caller;
/// immutable, so several threads may execute it at once.
class Primitive {
 public:
  static constexpr size_t kMaxArguments = 4;
  struct Argument {
    int id;  // DNNL_ARG_…
    dnnl_memory_desc_t desc;
  };

  /// `op_desc` is one of oneDNN's operation descriptors; `add_to_output` accumulates into what the
  /// output holds. `hint` is needed by backward convolutions. Layouts left `any` are found in
  /// `desc_of`.
  Primitive(const_dnnl_op_desc_t op_desc, std::span<const int> argument_ids, bool add_to_output,
            const Primitive* hint = nullptr);
  /// A reorder from one layout to another.
  Primitive(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to);
  Primitive(const Primitive&) = delete;
  Primitive& operator=(const Primitive&) = delete;
  ~Primitive();

  std::span<const Argument> arguments() const { return {arguments_.data(), count_}; }
  const dnnl_memory_desc_t& desc_of(int id) const;
  int64_t scratchpad_bytes() const { return scratchpad_bytes_; }
  const std::string& implementation() const { return implementation_; }

 private:
  friend class Executable;
  void finish(std::span<const int> argument_ids);

  dnnl_primitive_desc_t desc_ = nullptr;
  dnnl_primitive_t primitive_ = nullptr;
  std::array<Argument, kMaxArguments> arguments_;
  size_t count_ = 0;
  dnnl_memory_desc_t scratchpad_;
  int64_t scratchpad_bytes_ = 0;
  std::string implementation_;
};

/// The memory objects of one thread for one primitive.
class Executable {
 public:
  explicit Executable(const Primitive& primitive);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable();
  /// `data` in the order of the primitive's arguments.
  void run(std::span<void* const> data, void* scratchpad);

 private:
  const Primitive& primitive_;
  dnnl_stream_t stream_ = nullptr;
  std::array<dnnl_exec_arg_t, Primitive::kMaxArguments + 1> arguments_;
};

/// A primitive with one Executable and one scratchpad per thread.
class TeamPrimitive {
 public:
  template <class... Args>
  explicit TeamPrimitive(Args&&... args) : primitive_(std::forward<Args>(args)...) {}
  const Primitive& primitive() const { return primitive_; }
  /// Makes room for `count` threads; to be called outside of the region.
  void prepare(int count);
  void run(int thread, std::span<void* const> data, void* scratchpad) {
    members_[static_cast<size_t>(thread)]->run(data, scratchpad);
  }

 private:
  Primitive primitive_;
  std::vector<std::unique_ptr<Executable>> members_;
};

}  // namespace tandem::runtime
