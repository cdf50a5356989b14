// einsum: the equation is parsed into labels of dimensions; operands are contracted from left to
// right. A label that no later operand and no result has is summed as soon as it can be. A pair is
// one product: labels of both that stay are the batch, labels of both that go are summed. Pairs
// that sum nothing are pointwise, pairs with one row or column are sums over rows, all others bmm.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/diagnostic.h"
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

// --- the equation
// ---------------------------------------------------------------------------------

/// Labels are letters' codes; dimension i of `...`, counted from its end, is kEllipsis + i.
using Labels = std::vector<int>;
constexpr int kEllipsis = 256;
struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

struct Subscript {
  std::string before, after;  // of the ellipsis
  bool has_ellipsis = false;
};
Subscript parse_subscript(const Call& c, std::string_view text) {
  Subscript subscript;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 3) == "...") {
      if (subscript.has_ellipsis) c.fail("an operand has two ellipses in its subscripts");
      subscript.has_ellipsis = true;
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      (subscript.has_ellipsis ? subscript.after : subscript.before) += text[i];
    } else {
      c.fail(fmt::format("`{}` is no label: letters and `...` are", text[i]));
    }
  }
  return subscript;
}
std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t at = text.find(','); at != std::string_view::npos; at = text.find(',')) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

Labels labels_of(const Subscript& subscript, int ellipsis) {
  Labels labels(subscript.before.begin(), subscript.before.end());
  for (int i = ellipsis; i-- > 0 && subscript.has_ellipsis;) labels.push_back(kEllipsis + i);
  labels.insert(labels.end(), subscript.after.begin(), subscript.after.end());
  return labels;
}
/// Labels of one operand, whose ellipsis stands for what the letters leave.
Labels operand_labels(const Call& c, std::string_view text, size_t number) {
  Subscript subscript = parse_subscript(c, text);
  int letters = static_cast<int>(subscript.before.size() + subscript.after.size());
  int rank = static_cast<int>(c.values("tensors")[number]->type.rank());
  if (letters > rank || (letters < rank && !subscript.has_ellipsis))
    c.fail(fmt::format("the subscripts `{}` do not fit operand {}, which has {} dimensions", text,
                       number, rank));
  return labels_of(subscript, rank - letters);
}
int count_of(const std::vector<Labels>& operands, int label) {
  int64_t count = 0;
  for (const Labels& labels : operands) count += std::count(labels.begin(), labels.end(), label);
  return static_cast<int>(count);
}
int widest_ellipsis(const std::vector<Labels>& operands) {
  int widest = 0;
  for (const Labels& labels : operands)
    for (int label : labels) widest = std::max(widest, label - kEllipsis + 1);
  return widest;
}
/// Without `->`: the ellipsis, then every letter that occurs once, in order.
Labels implicit_result(const std::vector<Labels>& operands) {
  Labels result;
  for (int i = widest_ellipsis(operands); i-- > 0;) result.push_back(kEllipsis + i);
  for (int label = 'A'; label <= 'z'; ++label)
    if (count_of(operands, label) == 1) result.push_back(label);
  return result;
}
void check_result(const Call& c, const Equation& equation) {
  for (int label : equation.result) {
    if (std::count(equation.result.begin(), equation.result.end(), label) > 1)
      c.fail(fmt::format("the result has label `{}` twice", static_cast<char>(label)));
    if (label < kEllipsis && count_of(equation.operands, label) == 0)
      c.fail(fmt::format("no operand has label `{}` of the result", static_cast<char>(label)));
  }
}
Equation parse_equation(const Call& c) {
  std::string text = c.string("equation");
  size_t arrow = text.find("->");
  std::vector<std::string_view> parts = split_at_commas(std::string_view(text).substr(0, arrow));
  if (c.values("tensors").empty()) c.fail("needs at least one operand");
  if (parts.size() != c.values("tensors").size())
    c.fail(fmt::format("subscripts for {} operands, of which there are {}", parts.size(),
                       c.values("tensors").size()));
  Equation equation;
  for (size_t i = 0; i < parts.size(); ++i)
    equation.operands.push_back(operand_labels(c, parts[i], i));
  if (arrow == std::string::npos) {
    equation.result = implicit_result(equation.operands);
  } else {
    Subscript result = parse_subscript(c, std::string_view(text).substr(arrow + 2));
    equation.result = labels_of(result, widest_ellipsis(equation.operands));
  }
  check_result(c, equation);
  return equation;
}

/// Size of every label; 1 gives way to any other.
std::map<int, Expr> label_sizes(const Call& c, const Equation& equation) {
  std::map<int, Expr> sizes;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    const Labels& labels = equation.operands[i];
    for (size_t d = 0; d < labels.size(); ++d) {
      Expr size = c.values("tensors")[i]->type.sizes[d];
      Expr& known = sizes.emplace(labels[d], size).first->second;
      if (known == Expr(1)) known = size;
      if (size != Expr(1) && size != known && !sym::known_eq(size, known))
        c.fail(fmt::format("dimension {} of operand {} has {} elements, another with its label {}",
                           d, i, sym::to_string(size), sym::to_string(known)));
    }
  }
  return sizes;
}

// --- contraction
// ----------------------------------------------------------------------------------

/// A tensor whose dimensions have different labels.
struct Term {
  Tensor x;
  Labels labels;

  int64_t dim(int label) const {
    Labels::const_iterator found = std::find(labels.begin(), labels.end(), label);
    return found == labels.end() ? -1 : found - labels.begin();
  }
  bool has(int label) const { return dim(label) >= 0; }
  Expr size(int label) const { return x.size(dim(label)); }
  void remove(int label) { labels.erase(labels.begin() + dim(label)); }
};
bool contains(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

/// A label that an operand has twice stands for its diagonal.
Term with_diagonals(const Call& c, Tensor x, Labels labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    for (size_t j = i + 1; j < labels.size();) {
      if (labels[j] != labels[i]) {
        ++j;
        continue;
      }
      Expr left = x.size(static_cast<int64_t>(i));
      Expr right = x.size(static_cast<int64_t>(j));
      if (left != right && !sym::known_eq(left, right))
        c.fail(fmt::format("an operand has label `{}` twice, with {} and {} elements",
                           static_cast<char>(labels[i]), sym::to_string(left),
                           sym::to_string(right)));
      int64_t place = static_cast<int64_t>(i);
      x = call(x.builder(), "aten.diagonal", {x, 0, place, static_cast<int64_t>(j)});
      labels.erase(labels.begin() + static_cast<int64_t>(j));
      std::vector<int64_t> order;  // the diagonal, which is last, back to its place
      for (int64_t d = 0; d + 1 < x.rank(); ++d) order.push_back(d);
      order.insert(order.begin() + place, x.rank() - 1);
      x = permute(x, order);
    }
  }
  return {x, labels};
}
/// Sums the labels that `keep` does not have.
Term summed(Term term, const Labels& keep) {
  std::vector<int64_t> dims;
  Labels rest;
  for (size_t i = 0; i < term.labels.size(); ++i) {
    if (contains(keep, term.labels[i]))
      rest.push_back(term.labels[i]);
    else
      dims.push_back(static_cast<int64_t>(i));
  }
  if (dims.empty()) return term;
  return {to(sum(term.x, dims), term.x.dtype()), rest};
}
/// Dimensions of one element where the other has more are dropped: that is broadcasting.
void drop_broadcast(Term& a, const Term& b) {
  for (size_t i = a.labels.size(); i-- > 0;) {
    int label = a.labels[i];
    if (!b.has(label) || a.size(label) != Expr(1) || b.size(label) == Expr(1)) continue;
    a.x = squeeze(a.x, static_cast<int64_t>(i));
    a.remove(label);
  }
}

/// Labels of a pair by what becomes of them.
struct Roles {
  Labels batch, left, right, inner;
};
Roles roles_of(const Term& a, const Term& b, const Labels& keep) {
  Roles roles;
  for (int label : a.labels) {
    if (!b.has(label))
      roles.left.push_back(label);
    else
      (contains(keep, label) ? roles.batch : roles.inner).push_back(label);
  }
  for (int label : b.labels)
    if (!a.has(label)) roles.right.push_back(label);
  return roles;
}
Labels joined(std::initializer_list<Labels> parts) {
  Labels all;
  for (const Labels& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
/// x with its labels in that order, 1 for those it has not.
Tensor arranged(const Term& term, const Labels& order) {
  std::vector<int64_t> dims;
  Sizes sizes;
  for (int label : order) {
    if (term.has(label)) dims.push_back(term.dim(label));
    sizes.push_back(term.has(label) ? term.size(label) : Expr(1));
  }
  return reshape(permute(term.x, dims), sizes);
}
Expr count(const Term& term, const Labels& labels) {
  Expr product = 1;
  for (int label : labels) product = product * term.size(label);
  return product;
}

/// The product element by element; `inner` is summed from wide numbers.
Term pointwise_product(const Term& a, const Term& b, const Roles& roles) {
  Labels kept = joined({roles.batch, roles.left, roles.right});
  Labels all = joined({kept, roles.inner});
  Tensor left = arranged(a, all);
  Tensor right = arranged(b, all);
  if (roles.inner.empty()) return {left * right, all};
  DType dtype = a.x.dtype();
  Tensor product = to(left, compute_type(dtype)) * to(right, compute_type(dtype));
  std::vector<int64_t> dims;
  for (size_t i = kept.size(); i < all.size(); ++i) dims.push_back(static_cast<int64_t>(i));
  return {to(sum(product, dims), dtype), kept};
}
Term matrix_product(const Term& a, const Term& b, const Roles& roles) {
  Tensor left = arranged(a, joined({roles.batch, roles.left, roles.inner}));
  Tensor right = arranged(b, joined({roles.batch, roles.inner, roles.right}));
  Expr rows = count(a, roles.left);
  Expr columns = count(b, roles.right);
  Expr inner = count(a, roles.inner);
  Sizes sizes;
  for (int label : roles.batch) sizes.push_back(a.size(label));
  for (int label : roles.left) sizes.push_back(a.size(label));
  for (int label : roles.right) sizes.push_back(b.size(label));
  Tensor product;
  if (roles.batch.empty()) {
    product = mm(reshape(left, {rows, inner}), reshape(right, {inner, columns}));
  } else {
    Expr batch = count(a, roles.batch);
    product = bmm(reshape(left, {batch, rows, inner}), reshape(right, {batch, inner, columns}));
  }
  return {reshape(product, sizes), joined({roles.batch, roles.left, roles.right})};
}
/// a times b, without the labels that `keep` does not have.
Term contracted(Term a, Term b, const Labels& keep) {
  drop_broadcast(a, b);
  drop_broadcast(b, a);
  a = summed(a, joined({keep, b.labels}));
  b = summed(b, joined({keep, a.labels}));
  Roles roles = roles_of(a, b, keep);
  bool vector = roles.left.empty() || roles.right.empty();
  if (vector || roles.inner.empty()) return pointwise_product(a, b, roles);
  return matrix_product(a, b, roles);
}

bool is_among(const Labels& labels, const Labels& others) {
  return std::ranges::all_of(labels,
                             [&](int label) { return std::ranges::count(others, label) > 0; });
}
/// Whether one operand is summed before it meets another: of integers these are sums in i64.
bool sums_alone(const Equation& equation) {
  Labels product;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    const Labels& next = equation.operands[i];
    Labels keep = equation.result;
    for (size_t later = i + 1; later < equation.operands.size(); ++later)
      keep = joined({keep, equation.operands[later]});
    if (!is_among(next, joined({keep, product}))) return true;
    if (i > 0 && !is_among(product, joined({keep, next}))) return true;
    product = joined({product, next});
    std::erase_if(product, [&](int label) { return !is_among({label}, keep); });
  }
  return false;
}

Types einsum_types(const Call& c) {
  Equation equation = parse_equation(c);
  std::map<int, Expr> label = label_sizes(c, equation);
  const ir::Values& values = c.values("tensors");
  for (const ir::Value* value : values)
    if (value->type.dtype != values[0]->type.dtype) c.fail("operands must have the same dtype");
  const DType dtype = values[0]->type.dtype;
  if (dtype == DType::boolean) c.fail("bool operands are not accepted");
  if (is_int(dtype) && dtype != DType::i64 && sums_alone(equation))
    throw Unsupported(
        fmt::format("[aten::einsum] sums of {} alone, which are of i64", name_of(dtype)));
  Sizes sizes;
  for (int name : equation.result) sizes.push_back(label.at(name));
  return {ir::Type::tensor(values[0]->type.dtype, sizes)};
}
Tensors einsum(Builder& b, const Call& c) {
  Equation equation = parse_equation(c);
  Term result;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    Term next = with_diagonals(c, Tensor{b, c.values("tensors")[i]}, equation.operands[i]);
    Labels keep = equation.result;
    for (size_t later = i + 1; later < equation.operands.size(); ++later)
      keep = joined({keep, equation.operands[later]});
    result = i == 0 ? summed(next, keep) : contracted(result, next, keep);
  }
  return {expand(arranged(result, equation.result), c.result()->type.sizes)};
}
const OpDef kEinsum{
    .schema = "aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor",
    .types = einsum_types,
    .decompose = einsum,
    .samples = {"\"ij,jk->ik\", [$[3, 4], $[4, 5]]",
                "\"ij,jk\", [$[3, 4], $[4, 5]]",
                "\"bij,bjk->bik\", [$[2, 3, 4], $[2, 4, 5]]",
                "\"...ij,...jk->...ik\", [$[2, 1, 3, 4], $[5, 4, 2]]",
                "\"ii->i\", [$[3, 3]]",
                "\"ii\", [$[3, 3]]",
                "\"iji->j\", [$[3, 4, 3]]",
                "\"ij->ji\", [$[3, 4]]",
                "\"ij->\", [$[3, 4]]",
                "\"ba\", [$[3, 4]]",
                "\"i,i->\", [$[5], $[5]]",
                "\"i,j->ij\", [$[3], $[4]]",
                "\"bhid,bhjd->bhij\", [$[2, 3, 4, 5], $[2, 3, 6, 5]]",
                "\"bhij,bjhd->bihd\", [$[2, 3, 4, 5], $[2, 5, 3, 6]]",
                "\"ij,jk,kl->il\", [$[2, 3], $[3, 4], $[4, 2]]",
                "\"bi,oij,bj->bo\", [$[3, 4], $[2, 4, 5], $[3, 5]]",
                "\"ij,kj->ik\", [$[3, 1], $[2, 4]]",
                "\"...a->...\", [$[2, 3, 4]]",
                "\"a...,a...->...\", [$[4, 2, 1], $[4, 3]]",
                "\" i j , j -> i \", [$[3, 4], $[4]]",
                "\"ij,ij->ij\", [$[3, 4], $[3, 4]]",
                "\"i,ij,j->\", [$[3], $[3, 4], $[4]]",
                "\"aB,Ba\", [$[3, 4], $[4, 3]]",
                "\"ij,jk->ik\", [$[0, 4], $[4, 5]]",
                "\"ij,jk->ik\", [$[3, 0], $[0, 5]]",
                "\",i->i\", [$[], $[3]]",
                "\"ij,jk->iz\", [$[3, 4], $[4, 5]]",
                "\"ij,jk->ii\", [$[3, 4], $[4, 5]]",
                "\"ij,jk->ik\", [$[3, 4], $[3, 5]]",
                "\"ijk->i\", [$[3, 4]]",
                "\"ij,jk->ik\", [$[3, 4]]",
                "\"i1->i\", [$[3, 4]]",
                "\"ii->i\", [$[3, 4]]",
                "\"ij,jk->ik\", [$[3, 4], $[4, 5]], path=[0, 1]"}};

const OpDef* const kOps[] = {&kEinsum};

}  // namespace

Family einsum_family() { return kOps; }

}  // namespace tandem::ops
