// Files: weights from anywhere, and the cache's own, which a disk or a kill may have damaged.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/cache_folder.h"
#include "driver/image.h"
#include "frontend/npz.h"
#include "frontend/safetensors.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "test/frontend/files.h"
#include "test/fuzz/engine.h"
#include "test/fuzz/mutate.h"

namespace tandem::fuzz {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

/// A file in memory that is written again for each input; its path.
std::string path_of(const std::string& bytes) {
  static const int kFile = memfd_create("tandem_fuzz", MFD_CLOEXEC);
  const bool written =
      ftruncate(kFile, 0) == 0 && pwrite(kFile, bytes.data(), bytes.size(), 0) == std::ssize(bytes);
  if (!written) throw std::runtime_error("no memory file");
  return fmt::format("/proc/self/fd/{}", kFile);
}

/// Every byte must be there.
void read_all(const frontend::TensorFile& file) {
  unsigned sum = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    if (frontend::byte_count(tensor.dtype, tensor.sizes) != tensor.bytes.size())
      throw std::logic_error(name + " has not the bytes of its sizes");
    for (const std::byte each : tensor.bytes) sum += static_cast<unsigned>(each);
  }
  [[maybe_unused]] static volatile unsigned sink = 0;
  sink = sum;
}

const Texts kHeaders = {
    R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"I64","shape":[2],"data_offsets":[24,40]}})",
    R"({"__metadata__":{"format":"pt"},"a.b":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
    R"("c":{"dtype":"U8","shape":[0,7],"data_offsets":[2,2]}})",
    R"({"w":{"dtype":"F64","shape":[5,1],"data_offsets":[0,40]}} )"};

std::string make_safetensors(Random& random) {
  const bool damages_header = !random.one_in(3);
  std::string header = random.pick(kHeaders);
  const size_t data = random.one_in(4) ? random.below(64) : 40;
  if (damages_header) header = mutate_text(header, kHeaders, random);
  std::string bytes = frontend::raw(uint64_t{header.size()}) + header + std::string(data, 'x');
  return damages_header && !random.one_in(4) ? bytes : mutate_bytes(bytes, random);
}

const Texts kArrays = {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                       "{'descr': '|b1', 'fortran_order': False, 'shape': (), }",
                       "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }"};

std::string make_npz(Random& random) {
  std::vector<frontend::ZipEntry> entries;
  for (size_t i = random.below(3) + 1; i > 0; --i) {
    std::string header = random.pick(kArrays) + "   \n";
    if (random.one_in(2)) header = mutate_text(header, kArrays, random).substr(0, 60000);
    frontend::ZipEntry entry;
    entry.name = fmt::format("{}.npy", i);
    entry.content = frontend::make_npy(header, std::string(24, 'x'));
    entry.zip64 = random.one_in(3);
    if (random.one_in(4)) entry.content = mutate_bytes(entry.content, random);
    entries.push_back(entry);
  }
  const std::string bytes = random.one_in(8) ? entries[0].content : frontend::make_zip(entries);
  return random.one_in(2) ? bytes : mutate_bytes(bytes, random);
}

// --- the cache

constexpr const char* kEntry = "0123456789abcdef.o";

/// Of this process; goes with it.
const frontend::TemporaryFolder& folder() {
  static const frontend::TemporaryFolder kFolder;
  return kFolder;
}

const CacheFolder& cache() {
  static const CacheFolder kCache(folder().file(""));
  return kCache;
}

std::string entry_path() { return folder().file("tandem-cache/" + std::string(kEntry)); }

constexpr std::string_view kContent =
    "what an entry of the cache holds, a few words of eight bytes";

std::string make_entry(Random& random) {
  static const std::string kWhole = [] {
    cache().write(kEntry, kContent);
    std::ifstream file(entry_path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return mutate_bytes(kWhole, random);
}

void run_entry(const std::string& input) {
  static const bool kIsPrivate = (cache().write(kEntry, ""), true);
  if (!kIsPrivate) return;
  std::ofstream(entry_path(), std::ios::binary | std::ios::trunc) << input;
  const std::optional<std::string> found = cache().read(kEntry);
  if (found && *found != kContent) throw std::logic_error("a damaged entry was believed");
}

constexpr const char* kFunction =
    R"(graph @f(%x: f32[s0, 64], %w: f32[8, 64] {param "w" grad}, %k: i64) {
  %0 = aten.linear(%x, %w)
  %1 = aten.softmax.int(%0, -1)
  %2 = aten.add_.Scalar(%x, %k)
  return %1
})";

const std::string& image_bytes() {
  static const std::string kBytes = [] {
    driver::FunctionImage image;
    for (const driver::Gradients gradients :
         {driver::Gradients::none, driver::Gradients::tangents}) {
      const std::unique_ptr<ir::Module> module = ir::parse_module(kFunction, ops::op_table());
      driver::Options options;
      options.gradients = gradients;
      driver::GraphCtx ctx;
      driver::run_passes(*module->graphs()[0], options, ctx);
      image.programs.push_back(driver::build(*module->graphs()[0], options).image);
      for (codegen::ObjectCode& object : image.programs.back().kernels) object.bytes.resize(16);
    }
    ArchiveWriter archive;
    fields(archive, image);
    return archive.take();
  }();
  return kBytes;
}

int64_t no_kernel(void* const*, const int64_t*, int64_t, int64_t, void*) { return 0; }

/// Behind the sum over an entry: its structs, and a program's numbers. Kernels are left out.
void run_image(const std::string& input) {
  driver::FunctionImage image;
  ArchiveReader archive(input);
  fields(archive, image);
  if (!archive.is_complete()) return;
  for (driver::Image& each : image.programs) {
    const std::vector<abi::KernelFunction> kernels(each.program.kernels.size(), no_kernel);
    const runtime::LoadedProgram loaded(std::move(each.program), kernels);
  }
}

}  // namespace

std::vector<Engine> file_engines() {
  const auto image = [](Random& random) { return mutate_bytes(image_bytes(), random); };
  return {{"safetensors", make_safetensors,
           [](const std::string& input) { read_all(frontend::read_safetensors(path_of(input))); }},
          {"npz", make_npz,
           [](const std::string& input) { read_all(frontend::read_npz(path_of(input))); }},
          {"cache", make_entry, run_entry},
          {"image", image, run_image}};
}

}  // namespace tandem::fuzz
