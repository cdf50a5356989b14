// Torch's operators, and services' own loops, use OpenMP. Its threads do not sleep when a region is
// over: libgomp's look for the next one 300,000 times (5 ms, some 15 where a pause instruction
// takes 140 cycles), and a program that is called right behind such an operator has one core less
// for as long. OpenMP can be told to let them go (omp_pause_resource). That takes 20 to 70 us for
// a thread that looks and 190 for one that sleeps, and about as much again when the next region
// starts one, so it is done only where the call takes many times of what it took before. Whether
// there are threads to be ended cannot be asked; without, it takes no time.
//
// A process may hold several such libraries: torch brings its own. Each that is there when the
// first long call begins is told; libgomp is the one that was tried.
#include "runtime/openmp_threads.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/flags.h"
#include "runtime/fork.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime {
namespace {

constexpr int64_t kLeastOfCall = 20;      // a call takes that many times what ending threads does
constexpr int64_t kFirstGuess = 100'000;  // ns, with starting them again
constexpr int64_t kNone = 5'000;          // what takes less has ended nobody
constexpr int kSoft = 1;                  // omp_pause_soft

int64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

struct OpenMP {
  int (*pause)(int kind, int device) = nullptr;
  int (*host)() = nullptr;
};

int add_name(dl_phdr_info* info, size_t /*size*/, void* names) {
  const std::string_view path = info->dlpi_name;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  for (const std::string_view known : {"libgomp", "libomp", "libiomp5"})
    if (file.starts_with(known)) static_cast<std::vector<std::string>*>(names)->emplace_back(path);
  return 0;
}

// Never closed again, so that the functions stay.
std::vector<OpenMP> loaded_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(&add_name, &names);
  std::vector<OpenMP> found;
  for (const std::string& name : names) {
    void* const library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    OpenMP each;
    each.pause = reinterpret_cast<int (*)(int, int)>(dlsym(library, "omp_pause_resource"));
    each.host = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_initial_device"));
    if (each.pause != nullptr && each.host != nullptr) found.push_back(each);
  }
  return found;
}

// Those of the calling thread; inside of a region the library refuses.
void end_threads() {
  static const std::vector<OpenMP>* const libraries = new std::vector<OpenMP>(loaded_libraries());
  for (const OpenMP& each : *libraries) each.pause(kSoft, each.host());
}

// The price rises by a quarter at most: now and then a thread is off its core, and ending it takes
// 1.5 ms. At calls too short for it it falls bit by bit: threads that slept may look next time.
void end_threads_before(int64_t duration) {
  thread_local int64_t t_price = kFirstGuess;
  if (duration < t_price * kLeastOfCall) {
    t_price -= t_price / 64;
    return;
  }
  if (!flag_openmp()) return;
  const int64_t begin = now();
  end_threads();
  const int64_t taken = now() - begin;
  if (taken > kNone) t_price = std::min(2 * taken, t_price + t_price / 4);
}

}  // namespace

// A child has the library's list of threads, but not the threads: it would wait for them for ever.
CallBesideOpenMP::CallBesideOpenMP(std::atomic<int64_t>& duration) : duration_(duration) {
  const int64_t last = duration.load(std::memory_order_relaxed);
  if (threads() > 1 && last > 0 && !is_forked_child()) end_threads_before(last);
  begin_ = now();
}

CallBesideOpenMP::~CallBesideOpenMP() {
  duration_.store(now() - begin_, std::memory_order_relaxed);
}

}  // namespace tandem::runtime
