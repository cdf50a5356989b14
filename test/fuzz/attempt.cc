// A defect may abort, overrun its stack or never end, so inputs run in a child, which says in
// shared memory which one it is at, and since how much processor time. Time of the processor and
// not of the wall: a busy machine hangs nothing.
#include "test/fuzz/attempt.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <thread>

#include "base/diagnostic.h"
#include "test/fuzz/mutate.h"

namespace tandem::fuzz {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kDefect = 17;  // exit code of a child whose input ended in a wrong exception

struct Shared {
  std::atomic<uint64_t> taken = 0;
  std::atomic<uint64_t> refused = 0;
  std::atomic<uint64_t> at = 0;
  std::atomic<int64_t> since = 0;  // nanoseconds of the child's processor time
};

int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Child {
 public:
  Child() {
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    shared_ = new (memory) Shared;
    errors_ = std::tmpfile();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    munmap(shared_, sizeof(Shared));
    std::fclose(errors_);
  }

  /// `inputs` gives the input of a number, and false where there are no more.
  Outcome run(const Engine& engine, const std::function<bool(uint64_t, std::string&)>& inputs) {
    const pid_t child = fork();
    if (child == 0) work(engine, inputs);
    return wait(engine, child);
  }

 private:
  [[noreturn]] void work(const Engine& engine,
                         const std::function<bool(uint64_t, std::string&)>& inputs) {
    dup2(fileno(errors_), STDERR_FILENO);
    std::string input;
    for (uint64_t i = 0;; ++i) {
      shared_->at = i;
      shared_->since = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
      if (!inputs(i, input)) break;
      take(engine, input);
    }
    _exit(0);  // nothing of the parent's is flushed twice
  }

  void take(const Engine& engine, const std::string& input) {
    try {
      engine.run(input);
      ++shared_->taken;
    } catch (const UserError&) {
      ++shared_->refused;
    } catch (const std::exception& error) {
      fmt::print(stderr, "defect: {}\n", error.what());
      std::fflush(stderr);
      _exit(kDefect);
    }
  }

  Outcome wait(const Engine& engine, pid_t child) {
    clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
    clock_getcpuclockid(child, &clock);
    int status = 0;
    Outcome outcome;
    while (waitpid(child, &status, WNOHANG) == 0) {
      const int64_t taken = nanoseconds(clock) - shared_->since;
      if (static_cast<double>(taken) > engine.seconds * 1e9) {
        outcome.hung = kill(child, SIGKILL) == 0;
        waitpid(child, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    outcome.taken = shared_->taken;
    outcome.refused = shared_->refused;
    outcome.at = shared_->at;
    outcome.failed = outcome.hung || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (outcome.failed) explain(outcome, status);
    return outcome;
  }

  void explain(Outcome& outcome, int status) {
    std::string text(1 << 20, '\0');
    std::rewind(errors_);
    text.resize(std::fread(text.data(), 1, text.size(), errors_));
    outcome.report = text;
    outcome.message = WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                          : fmt::format("exit {}", WEXITSTATUS(status));
    if (outcome.hung) outcome.message = "no end";
    // Addresses and values differ from input to input, so only the beginning counts.
    for (const char* mark : {"SUMMARY: ", "check failed", "runtime error: ", "defect: "}) {
      const size_t begin = text.find(mark);
      if (begin == std::string::npos) continue;
      const size_t line = text.rfind('\n', begin) + 1;
      outcome.message += ": " + text.substr(line, text.find('\n', begin) - line).substr(0, 160);
      break;
    }
  }

  Shared* shared_ = nullptr;
  std::FILE* errors_ = nullptr;
};

/// Without values: numbers of an otherwise equal message may differ.
std::string kind_of(const Outcome& outcome) {
  std::string kind = outcome.message.substr(0, 60);
  std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
  return kind;
}

/// By the engine's own rules; how an input ends counts, not what it says: names change.
std::string minimised_by(const Engine& engine, std::string input, const Outcome& outcome,
                         double seconds) {
  const Clock::time_point start = Clock::now();
  const std::string kind = outcome.message.substr(0, outcome.message.find(' ', 5));
  for (bool shorter = true; shorter;) {
    shorter = false;
    for (const std::string& trial : engine.smaller(input)) {
      if (seconds_since(start) > seconds) return input;
      const Outcome again = attempt(engine, trial);
      if (!again.failed || !again.message.starts_with(kind)) continue;
      input = trial;
      shorter = true;
      break;
    }
  }
  return input;
}

}  // namespace

std::string input_of(const Engine& engine, uint64_t seed, uint64_t number) {
  Random random(seed * 1'000'003 + number);
  return engine.make(random);
}

Outcome attempt(const Engine& engine, uint64_t seed, uint64_t first, uint64_t count,
                double seconds) {
  const Clock::time_point start = Clock::now();
  Outcome outcome = Child().run(engine, [&](uint64_t i, std::string& input) {
    if (i >= count || seconds_since(start) > seconds) return false;
    input = input_of(engine, seed, first + i);
    return true;
  });
  outcome.at += first;
  return outcome;
}

Outcome attempt(const Engine& engine, const std::string& input) {
  return Child().run(engine, [&](uint64_t i, std::string& next) {
    next = input;
    return i == 0;
  });
}

std::string minimised(const Engine& engine, std::string input, const Outcome& outcome,
                      double seconds) {
  if (engine.smaller) return minimised_by(engine, std::move(input), outcome, seconds);
  const Clock::time_point start = Clock::now();
  std::vector<std::string> tokens = tokens_of(input);
  for (size_t piece = std::max<size_t>(tokens.size() / 2, 1); seconds_since(start) < seconds;) {
    bool shorter = false;
    for (size_t at = 0; at < tokens.size() && seconds_since(start) < seconds;) {
      std::vector<std::string> rest = tokens;
      const std::ptrdiff_t from = static_cast<std::ptrdiff_t>(at);
      const std::ptrdiff_t to = static_cast<std::ptrdiff_t>(std::min(at + piece, rest.size()));
      rest.erase(rest.begin() + from, rest.begin() + to);
      std::string text;
      for (const std::string& token : rest) text += token;
      const Outcome again = attempt(engine, text);
      if (again.failed && kind_of(again) == kind_of(outcome)) {
        tokens = std::move(rest);
        input = std::move(text);
        shorter = true;
      } else {
        at += piece;
      }
    }
    if (piece == 1 && !shorter) break;
    piece = std::max<size_t>(piece / 2, 1);
  }
  return input;
}

}  // namespace tandem::fuzz
