// What a page looks like and what moves on it. Both are text that the browser alone reads.
#include "driver/page/parts.h"

namespace tandem::driver::page {

std::string_view style() {
  return R"(
body { font: 14px/1.4 sans-serif; margin: 24px; color: #222; background: #fff; }
h2 { border-top: 2px solid #222; padding-top: 12px; }
table { border-collapse: collapse; margin: 12px 0; }
caption { text-align: left; font-weight: bold; padding: 4px 0; }
th, td { padding: 2px 10px; text-align: left; border-bottom: 1px solid #ddd; }
.name, .what, svg text, .tip { font-family: monospace; font-size: 12px; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.bar { width: 90px; } .bar i { display: block; height: 8px; background: #3a7bc8; }
.chart { position: relative; }
.tip { position: absolute; top: 306px; left: 80px; background: #fffff4; border: 1px solid #888;
  padding: 6px; white-space: pre; pointer-events: none; z-index: 1; }
.legend span { margin-right: 16px; }
polyline { fill: none; stroke-width: 1.5; }
polyline.planned { stroke: #1f5fa8; } span.planned { color: #1f5fa8; }
polyline.measured { stroke: #d2691e; } span.measured { color: #d2691e; }
polyline.all { stroke: #999; stroke-dasharray: 4 3; } span.all { color: #777; }
.grid { stroke: #e4e4e4; } .border { stroke: #c33; stroke-dasharray: 6 4; } .at { stroke: #444; }
.tick { text-anchor: end; }
.scroll { max-height: 720px; overflow: auto; border: 1px solid #ccc; }
.head { font-weight: bold; }
.box rect { fill: #eef3fa; stroke: #7a93b4; }
.box.input rect { fill: #f4f4f4; } .box.kept rect { fill: #ffe9c9; stroke: #c98d2b; }
.box.remade rect { fill: #eaf7ea; stroke: #57a057; stroke-dasharray: 4 2; }
.box.reader rect { fill: #f7ecf7; stroke: #a77aa7; }
.edge { fill: none; stroke: #bbb; } .edge.on { stroke: #c33; stroke-width: 2; }
.dim { opacity: 0.15; }
)";
}

std::string_view script() {
  return R"(
'use strict';
const size = bytes => {
  let unit = 0;
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  while (bytes >= 1024 && unit + 1 < names.length) { bytes /= 1024; ++unit; }
  return (unit ? bytes.toFixed(2) : bytes) + ' ' + names[unit];
};

// The step of a curve at a place between the axes.
function stepAt(data, series, x) {
  const forward = x < data.border;
  const from = forward ? data.left : data.border;
  const to = forward ? data.border : data.left + data.width;
  const count = forward ? series.forward : series.bytes.length - series.forward;
  const step = Math.floor((x - from) / Math.max(to - from, 1) * count);
  return (forward ? 0 : series.forward) + Math.max(0, Math.min(count - 1, step));
}

function linesOf(data, x) {
  const planned = data.series[data.series.length - 1];
  const step = stepAt(data, planned, x);
  const half = step < data.forward ? 'forward' : 'backward';
  const lines = ['step ' + step + ' (' + half + '): ' + data.steps[step]];
  for (const series of data.series)
    lines.push(size(series.bytes[stepAt(data, series, x)]).padStart(12) + '  ' + series.name);
  lines.push(size(data.arguments).padStart(12) + '  arguments');
  const live = data.blocks.filter(block => block[2] <= step && step <= block[3]);
  live.sort((a, b) => b[1] - a[1]);
  for (const block of live.slice(0, 16))
    lines.push(size(block[1]).padStart(12) + '  ' + block[0] + (block[4] ? ' (in the arena)' : ''));
  const rest = live.slice(16).reduce((sum, block) => sum + block[1], 0);
  if (live.length > 16) lines.push(size(rest).padStart(12) + '  ' + (live.length - 16) + ' more');
  return lines;
}

for (const chart of document.querySelectorAll('.chart')) {
  const svg = chart.querySelector('svg');
  const tip = chart.querySelector('.tip');
  const line = chart.querySelector('.at');
  const data = JSON.parse(chart.querySelector('script').textContent);
  svg.addEventListener('mousemove', event => {
    const box = svg.getBoundingClientRect();
    const right = data.left + data.width;
    const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const inside = x >= data.left && x <= right;
    tip.hidden = !inside;
    line.setAttribute('visibility', inside ? 'visible' : 'hidden');
    if (!inside) return;
    line.setAttribute('x1', x);
    line.setAttribute('x2', x);
    tip.textContent = linesOf(data, x).join('\n');
  });
  svg.addEventListener('mouseleave', () => {
    tip.hidden = true;
    line.setAttribute('visibility', 'hidden');
  });
}

for (const picture of document.querySelectorAll('svg.cut'))
  for (const box of picture.querySelectorAll('.box')) {
    const row = box.dataset.row;
    const edges = picture.querySelectorAll('[data-from="' + row + '"], [data-to="' + row + '"]');
    const mark = on => edges.forEach(edge => edge.classList.toggle('on', on));
    box.addEventListener('mouseenter', () => mark(true));
    box.addEventListener('mouseleave', () => mark(false));
  }

for (const find of document.querySelectorAll('.find'))
  find.addEventListener('input', () => {
    const section = find.closest('section');
    const has = element => element.textContent.includes(find.value);
    section.querySelectorAll('td.name').forEach(cell => {
      cell.parentNode.hidden = !has(cell.parentNode);
    });
    section.querySelectorAll('.box').forEach(box => box.classList.toggle('dim', !has(box)));
  });
)";
}

}  // namespace tandem::driver::page
