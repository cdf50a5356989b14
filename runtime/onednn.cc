// oneDNN is reached through a table of function pointers, so that a process whose programs are all
// emitted kernels does not map 40 MB. Results must not depend on the number of threads: oneDNN
// decides blocking and reduction splits from the team it sees at creation, so every primitive is
// created and executed under a team of one. Scratchpads belong to the caller, because the library's
// own one is tied to the thread that created the primitive. TANDEM_ISA holds the library too, to
// what it says when the library is opened.
#include "runtime/onednn.h"

#include <dlfcn.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/check.h"
#include "base/diagnostic.h"
#include "base/flags.h"
#include "runtime/library.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime {
namespace {

std::atomic<bool> g_open{false};

void check(dnnl_status_t status, const char* what) {
  TD_CHECK(status == dnnl_success)
      << "oneDNN status " << static_cast<int>(status) << " of " << what;
}

template <class F>
void bind(void* library, const char* name, F& entry) {
  entry = reinterpret_cast<F>(dlsym(library, name));
  if (entry == nullptr) throw UserError(std::string("libdnnl.so.2 has no entry ") + name);
}

void bind_objects(void* library, OneDnn& table) {
  bind(library, "dnnl_set_max_cpu_isa", table.set_max_cpu_isa);
  bind(library, "dnnl_engine_create", table.engine_create);
  bind(library, "dnnl_stream_create", table.stream_create);
  bind(library, "dnnl_stream_destroy", table.stream_destroy);
  bind(library, "dnnl_memory_desc_init_by_strides", table.memory_desc_init_by_strides);
  bind(library, "dnnl_memory_desc_init_by_tag", table.memory_desc_init_by_tag);
  bind(library, "dnnl_memory_desc_get_size", table.memory_desc_get_size);
  bind(library, "dnnl_memory_desc_equal", table.memory_desc_equal);
  bind(library, "dnnl_memory_create", table.memory_create);
  bind(library, "dnnl_memory_destroy", table.memory_destroy);
  bind(library, "dnnl_memory_set_data_handle", table.memory_set_data_handle);
  bind(library, "dnnl_primitive_attr_create", table.primitive_attr_create);
  bind(library, "dnnl_primitive_attr_destroy", table.primitive_attr_destroy);
  bind(library, "dnnl_primitive_attr_set_scratchpad_mode",
       table.primitive_attr_set_scratchpad_mode);
  bind(library, "dnnl_primitive_attr_set_fpmath_mode", table.primitive_attr_set_fpmath_mode);
  bind(library, "dnnl_primitive_attr_set_post_ops", table.primitive_attr_set_post_ops);
  bind(library, "dnnl_post_ops_create", table.post_ops_create);
  bind(library, "dnnl_post_ops_destroy", table.post_ops_destroy);
  bind(library, "dnnl_post_ops_append_sum", table.post_ops_append_sum);
}

void bind_primitives(void* library, OneDnn& table) {
  bind(library, "dnnl_matmul_desc_init", table.matmul_desc_init);
  bind(library, "dnnl_dilated_convolution_forward_desc_init", table.convolution_forward_desc_init);
  bind(library, "dnnl_dilated_convolution_backward_data_desc_init",
       table.convolution_backward_data_desc_init);
  bind(library, "dnnl_dilated_convolution_backward_weights_desc_init",
       table.convolution_backward_weights_desc_init);
  bind(library, "dnnl_reorder_primitive_desc_create", table.reorder_primitive_desc_create);
  bind(library, "dnnl_primitive_desc_create", table.primitive_desc_create);
  bind(library, "dnnl_primitive_desc_destroy", table.primitive_desc_destroy);
  bind(library, "dnnl_primitive_desc_query", table.primitive_desc_query);
  bind(library, "dnnl_primitive_desc_query_md", table.primitive_desc_query_md);
  bind(library, "dnnl_primitive_create", table.primitive_create);
  bind(library, "dnnl_primitive_destroy", table.primitive_destroy);
  bind(library, "dnnl_primitive_execute", table.primitive_execute);
}

OneDnn open_library() {
  void* const library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw UserError(std::string("this program calls oneDNN, which is not installed: ") + dlerror());
  OneDnn table{};
  bind_objects(library, table);
  bind_primitives(library, table);
  // Before anything else: the library asks the processor once.
  if (flag_isa() == "avx2") check(table.set_max_cpu_isa(dnnl_cpu_isa_avx2), "instruction set");
  check(table.engine_create(&table.engine, dnnl_cpu, 0), "engine");
  g_open = true;
  return table;
}

dnnl_primitive_attr_t make_attributes(bool add_to_output) {
  const OneDnn& dnn = onednn();
  dnnl_primitive_attr_t attributes = nullptr;
  check(dnn.primitive_attr_create(&attributes), "attributes");
  check(dnn.primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
        "scratchpad");
  check(dnn.primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict), "fpmath");
  if (add_to_output) {
    dnnl_post_ops_t post_ops = nullptr;
    check(dnn.post_ops_create(&post_ops), "post-ops");
    check(dnn.post_ops_append_sum(post_ops, 1.0f), "sum");
    check(dnn.primitive_attr_set_post_ops(attributes, post_ops), "post-ops");
    dnn.post_ops_destroy(post_ops);
  }
  return attributes;
}

dnnl_query_t query_of(int id) {
  switch (id) {
    case DNNL_ARG_SRC: return dnnl_query_src_md;
    case DNNL_ARG_WEIGHTS: return dnnl_query_weights_md;
    case DNNL_ARG_BIAS: return dnnl_query_weights_md;  // index 1
    case DNNL_ARG_DST: return dnnl_query_dst_md;
    case DNNL_ARG_DIFF_SRC: return dnnl_query_diff_src_md;
    case DNNL_ARG_DIFF_WEIGHTS: return dnnl_query_diff_weights_md;
    case DNNL_ARG_DIFF_DST: return dnnl_query_diff_dst_md;
    default: TD_CHECK(false) << "argument " << id;
  }
  return dnnl_query_undef;
}

}  // namespace

const OneDnn& onednn() {
  static const OneDnn table = open_library();
  return table;
}

bool onednn_is_open() { return g_open; }

OneThread::OneThread() : saved_(omp_get_max_threads()) {
  if (thread_index() != 0) signals_.emplace(WithoutSignals::Profiler::waits);
  if (saved_ != 1) omp_set_num_threads(1);
}

OneThread::~OneThread() {
  if (saved_ != 1) omp_set_num_threads(saved_);
}

void give_back_ends() {
  constexpr size_t kKept = 7;       // of a size, by glibc
  constexpr size_t kShortest = 24;  // usable bytes: 8 less than the block
  constexpr size_t kLongest = 184;  // more than an alignment of 128 leaves
  constexpr size_t kGranule = 16;
  std::array<void* volatile, 2 * kKept> blocks;  // volatile: else the compiler takes the pairs out
  for (size_t bytes = kShortest; bytes <= kLongest; bytes += kGranule) {
    for (void* volatile& block : blocks) block = std::malloc(bytes);
    // Those that it kept came first. The others take their places, and they go back to the heap.
    for (size_t i = blocks.size(); i-- > 0;) std::free(blocks[i]);
  }
}

dnnl_data_type_t onednn_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return dnnl_f32;
    case DType::bf16: return dnnl_bf16;
    case DType::f16: return dnnl_f16;
    case DType::i32: return dnnl_s32;
    case DType::i8: return dnnl_s8;
    case DType::u8: return dnnl_u8;
    default: TD_CHECK(false) << "oneDNN has no type " << name_of(dtype);
  }
  return dnnl_data_type_undef;
}

dnnl_memory_desc_t strided_desc(DType dtype, std::span<const int64_t> sizes,
                                std::span<const int64_t> strides) {
  dnnl_memory_desc_t desc;
  check(onednn().memory_desc_init_by_strides(&desc, static_cast<int>(sizes.size()), sizes.data(),
                                             onednn_type(dtype), strides.data()),
        "strided layout");
  return desc;
}

dnnl_memory_desc_t any_desc(DType dtype, std::span<const int64_t> sizes) {
  dnnl_memory_desc_t desc;
  check(onednn().memory_desc_init_by_tag(&desc, static_cast<int>(sizes.size()), sizes.data(),
                                         onednn_type(dtype), dnnl_format_tag_any),
        "layout");
  return desc;
}

std::string text_of(const dnnl_memory_desc_t& desc) {
  std::string text = std::to_string(desc.data_type) + "/" + std::to_string(desc.format_kind) + "/" +
                     std::to_string(desc.extra.flags);
  const auto add = [&](const dnnl_dim_t* numbers, int count) {
    text += ":";
    for (int i = 0; i < count; ++i) text += std::to_string(numbers[i]) + ",";
  };
  const dnnl_blocking_desc_t& blocking = desc.format_desc.blocking;
  add(desc.dims, desc.ndims);
  add(desc.padded_dims, desc.ndims);
  if (desc.format_kind != dnnl_blocked) return text;
  add(blocking.strides, desc.ndims);
  add(blocking.inner_blks, blocking.inner_nblks);
  add(blocking.inner_idxs, blocking.inner_nblks);
  return text;
}

Primitive::Primitive(const_dnnl_op_desc_t op_desc, std::span<const int> argument_ids,
                     bool add_to_output, const Primitive* hint) {
  const OneThread one;
  const dnnl_primitive_attr_t attributes = make_attributes(add_to_output);
  const dnnl_status_t status = onednn().primitive_desc_create(
      &desc_, op_desc, attributes, onednn().engine, hint == nullptr ? nullptr : hint->desc_);
  onednn().primitive_attr_destroy(attributes);
  if (status == dnnl_unimplemented)
    throw NoImplementation(
        "[runtime] oneDNN on this machine has no implementation of a library call");
  check(status, "primitive descriptor");
  finish(argument_ids);
}

Primitive::Primitive(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to) {
  const OneThread one;
  const dnnl_primitive_attr_t attributes = make_attributes(false);
  const dnnl_engine_t engine = onednn().engine;
  check(onednn().reorder_primitive_desc_create(&desc_, &from, engine, &to, engine, attributes),
        "reorder");
  onednn().primitive_attr_destroy(attributes);
  constexpr std::array<int, 2> kIds = {DNNL_ARG_SRC, DNNL_ARG_DST};
  finish(kIds);
}

void Primitive::finish(std::span<const int> argument_ids) {
  const OneDnn& dnn = onednn();
  check(dnn.primitive_create(&primitive_, desc_), "primitive");
  for (const int id : argument_ids) {
    const dnnl_memory_desc_t* const desc =
        dnn.primitive_desc_query_md(desc_, query_of(id), id == DNNL_ARG_BIAS ? 1 : 0);
    TD_CHECK(desc != nullptr) << "argument " << id;
    arguments_[count_++] = {id, *desc};
  }
  scratchpad_ = *dnn.primitive_desc_query_md(desc_, dnnl_query_scratchpad_md, 0);
  scratchpad_bytes_ = static_cast<int64_t>(dnn.memory_desc_get_size(&scratchpad_));
  const char* name = nullptr;
  check(dnn.primitive_desc_query(desc_, dnnl_query_impl_info_str, 0, &name), "implementation");
  implementation_ = name;
}

Primitive::~Primitive() {
  if (primitive_ != nullptr) onednn().primitive_destroy(primitive_);
  if (desc_ != nullptr) onednn().primitive_desc_destroy(desc_);
}

const dnnl_memory_desc_t& Primitive::desc_of(int id) const {
  for (const Argument& argument : arguments())
    if (argument.id == id) return argument.desc;
  TD_CHECK(false) << "argument " << id;
  return arguments_[0].desc;
}

Executable::Executable(const Primitive& primitive) : primitive_(primitive) {
  const OneDnn& dnn = onednn();
  check(dnn.stream_create(&stream_, dnn.engine, dnnl_stream_in_order), "stream");
  size_t at = 0;
  for (const Primitive::Argument& argument : primitive.arguments()) {
    arguments_[at].arg = argument.id;
    check(dnn.memory_create(&arguments_[at++].memory, &argument.desc, dnn.engine, nullptr),
          "memory");
  }
  arguments_[at].arg = DNNL_ARG_SCRATCHPAD;
  check(dnn.memory_create(&arguments_[at].memory, &primitive.scratchpad_, dnn.engine, nullptr),
        "scratchpad");
}

Executable::~Executable() {
  for (size_t i = 0; i <= primitive_.count_; ++i) onednn().memory_destroy(arguments_[i].memory);
  onednn().stream_destroy(stream_);
}

void Executable::run(std::span<void* const> data, void* scratchpad) {
  const OneDnn& dnn = onednn();
  TD_CHECK(data.size() == primitive_.count_);
  for (size_t i = 0; i < data.size(); ++i)
    dnn.memory_set_data_handle(arguments_[i].memory, data[i]);
  dnn.memory_set_data_handle(arguments_[data.size()].memory, scratchpad);
  check(dnn.primitive_execute(primitive_.primitive_, stream_, static_cast<int>(data.size() + 1),
                              arguments_.data()),
        "execution");
}

void TeamPrimitive::prepare(int count) {
  while (members_.size() < static_cast<size_t>(count))
    members_.push_back(std::make_unique<Executable>(primitive_));
}

}  // namespace tandem::runtime
