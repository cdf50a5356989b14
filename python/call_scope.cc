// Eager follows torch.set_num_threads, and so do we, at every call: a program that used more
// threads would take turns with what the user runs beside it on cores that there are not. Torch's
// number is the calling thread's, so torch is asked (50 ns). Signals arrive in Python's main thread
// only, so only its calls stop to look.
#include "python/call_scope.h"

#include <atomic>

namespace tandem::python {
namespace {

PyObject* g_torch_threads = nullptr;          // never freed: calls come until the process ends
std::atomic<unsigned long> g_main_thread{0};  // 0: nobody looks at signals

void ask_python() {
  nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

int team_size(int threads) {
  if (threads > 0) return threads;
  if (driver::set_number_of_threads() > 0 || g_torch_threads == nullptr) return driver::threads();
  const nb::object number = nb::steal(PyObject_CallNoArgs(g_torch_threads));
  if (!number.is_valid()) nb::raise_python_error();
  return nb::cast<int>(number);
}

}  // namespace

void use_torch_threads(nb::object callable) { g_torch_threads = callable.release().ptr(); }

void watch_signals(unsigned long thread) { g_main_thread = thread; }

CallScope::CallScope(int threads)
    : team_(team_size(threads)),
      interruptible_(PyThread_get_thread_ident() == g_main_thread ? &ask_python : nullptr) {}

}  // namespace tandem::python
