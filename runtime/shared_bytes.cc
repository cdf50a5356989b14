// An element's address is a sum of index * stride, an index between 0 and size - 1. Counted in the
// largest unit that divides the sizes of elements and the distance of the two arrays, an element is
// one unit most often; where it is several they are one more such term, of stride 1. So two arrays
// share a byte where
//   a + sum i*s = b + sum j*t.
// With the indices of the second counted from the other end (j = most - j'), all terms stand on one
// side, none of them negative: sum c*x = target, 0 <= x <= most. Terms that count on where a
// smaller one ends become one with it, which leaves one term of what is dense. What is left is
// searched from the largest step on; bounds and the greatest common divisor of what is behind a
// term leave few values of it, most often one or none.
#include "runtime/shared_bytes.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace tandem::runtime {
namespace {

/// step * x for x from 0 to most.
struct Term {
  int64_t step = 1;
  int64_t most = 0;
};

/// {step * x} + {m * step * y} = {step * z}, z up to most + m * most', where m <= most + 1: no
/// multiple is left out.
bool absorbs(const Term& small, const Term& large) {
  return large.step % small.step == 0 && large.step / small.step <= small.most + 1;
}

/// Of both arrays, the largest step first.
std::vector<Term> merged(std::vector<Term> terms) {
  std::ranges::sort(terms, std::less<>(), &Term::step);
  std::vector<Term> kept;
  for (const Term& term : terms) {
    if (!kept.empty() && absorbs(kept.back(), term)) {
      kept.back().most += term.step / kept.back().step * term.most;
    } else {
      kept.push_back(term);
    }
  }
  std::ranges::reverse(kept);
  return kept;
}

int64_t ceil_div(int64_t a, int64_t b) { return a <= 0 ? -(-a / b) : (a - 1) / b + 1; }

/// x with step * x = 1 (mod modulus), where the two have no common divisor.
int64_t inverse(int64_t step, int64_t modulus) {
  int64_t a = step % modulus, b = modulus;
  int64_t x = 1, y = 0;
  while (b != 0) {
    const int64_t times = a / b;
    a = std::exchange(b, a - times * b);
    x = std::exchange(y, x - times * y);
  }
  return (x % modulus + modulus) % modulus;
}

/// Values of a term that may lead to a solution: next, next + apart, … up to last.
struct Choice {
  int64_t rest = 0;  // that this term and those behind it must sum up to
  int64_t next = 0;
  int64_t apart = 1;
  int64_t last = -1;
};

class Search {
 public:
  explicit Search(std::vector<Term> terms) : terms_(std::move(terms)) {
    ends_.assign(terms_.size() + 1, 0);
    divisors_.assign(terms_.size() + 1, 0);
    for (size_t i = terms_.size(); i-- > 0;) {
      ends_[i] = ends_[i + 1] + terms_[i].step * terms_[i].most;
      divisors_[i] = std::gcd(terms_[i].step, divisors_[i + 1]);
    }
  }

  Sharing run(int64_t target, int64_t most_steps) const {
    std::vector<Choice> open;
    if (terms_.empty()) return target == 0 ? Sharing::shared : Sharing::apart;
    open.push_back(choices(0, target));
    while (!open.empty()) {
      Choice& choice = open.back();
      if (choice.next > choice.last) {
        open.pop_back();
        continue;
      }
      if (most_steps-- == 0) return Sharing::unknown;
      const int64_t rest = choice.rest - terms_[open.size() - 1].step * choice.next;
      choice.next += choice.apart;
      if (open.size() == terms_.size()) return Sharing::shared;  // choices() left no rest
      open.push_back(choices(open.size(), rest));
    }
    return Sharing::apart;
  }

 private:
  /// What is left for the terms behind must be between 0 and their end, and a multiple of their
  /// divisor d: step * x = rest (mod d).
  Choice choices(size_t number, int64_t rest) const {
    const Term& term = terms_[number];
    const int64_t divisor = divisors_[number + 1];
    Choice choice{rest, std::max<int64_t>(0, ceil_div(rest - ends_[number + 1], term.step)), 1,
                  std::min(term.most, rest / term.step)};
    if (divisor == 0) {  // the last one: no rest
      if (rest % term.step != 0) choice.last = -1;
      return choice;
    }
    const int64_t common = std::gcd(term.step, divisor);
    if (rest % common != 0) return {rest, 0, 1, -1};
    choice.apart = divisor / common;
    const __int128 product = static_cast<__int128>(rest / common % choice.apart) *
                             inverse(term.step / common, choice.apart);
    const int64_t first = static_cast<int64_t>(product % choice.apart);
    choice.next += (first - choice.next % choice.apart + choice.apart) % choice.apart;
    return choice;
  }

  std::vector<Term> terms_;
  std::vector<int64_t> ends_;      // by term: of the sum of it and those behind
  std::vector<int64_t> divisors_;  // the same: the greatest common one of their steps
};

/// Gives the place of the last unit from that of the first.
int64_t add_terms(const Array& array, int64_t unit, std::vector<Term>& terms) {
  const int64_t units = size_of(array.dtype()) / unit;
  int64_t last = units - 1;
  if (units > 1) terms.push_back({1, units - 1});
  for (size_t i = 0; i < array.rank(); ++i) {
    const int64_t most = array.sizes()[i] - 1;
    if (most == 0 || array.strides()[i] == 0) continue;
    terms.push_back({array.strides()[i] * units, most});
    last += array.strides()[i] * units * most;
  }
  return last;
}

}  // namespace

Sharing sharing_of(const Array& first, const Array& second, int64_t most_steps) {
  if (first.numel() == 0 || second.numel() == 0) return Sharing::apart;
  const int64_t bytes =
      static_cast<std::byte*>(second.raw()) - static_cast<std::byte*>(first.raw());
  const int64_t unit = std::gcd(std::gcd(bytes, size_of(first.dtype())), size_of(second.dtype()));
  std::vector<Term> terms;
  const int64_t first_last = add_terms(first, unit, terms);
  const int64_t target = bytes / unit + add_terms(second, unit, terms);
  if (target < 0 || bytes / unit > first_last) return Sharing::apart;
  return Search(merged(std::move(terms))).run(target, most_steps);
}

}  // namespace tandem::runtime
