"""The style sheet of a report. It uses the colours of Okabe and Ito, which colour-blind readers can distinguish.

Pure: a text.
"""

STYLE = """
:root {
  --paper: #f6f7f9; --card: #ffffff; --ink: #1c2430; --soft: #5b6675; --rule: #e3e7ec; --grid: #edf0f3;
  --shade: #1c243033;
  --c1: #0072b2; --c2: #d55e00; --c3: #009e73; --c4: #cc79a7; --c5: #e69f00; --c6: #8a94a3;
  --trouble: #c0392b; --waste: #d55e00; --known: #0072b2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12161c; --card: #1a2029; --ink: #e6eaf0; --soft: #9aa6b5; --rule: #2b3440; --grid: #242c37;
    --shade: #000000aa;
    --c1: #56b4e9; --c2: #f0843c; --c3: #2fc79a; --c4: #e0a3c6; --c5: #f0c04a; --c6: #6c7888;
    --trouble: #ff7b6b; --waste: #f0a35c; --known: #56b4e9;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1280px; margin: 0 auto; padding: 40px 24px 64px; }
header .over {
  margin: 0; color: var(--c1); font-weight: 600; letter-spacing: .06em; text-transform: uppercase;
  font-size: 12px;
}
h1 {
  margin: 2px 0 4px; font-size: 30px; line-height: 1.2; font-weight: 650; letter-spacing: -.01em;
  overflow-wrap: anywhere;
}
.where { margin: 0; color: var(--soft); }
h2 { margin: 44px 0 2px; font-size: 22px; font-weight: 650; letter-spacing: -.01em; overflow-wrap: anywhere; }
h3 { margin: 0 0 2px; font-size: 16px; font-weight: 650; }
h4 { margin: 14px 0 2px; font-size: 12px; font-weight: 600; color: var(--soft); }
a { color: var(--c1); text-decoration: none; }
a:hover { text-decoration: underline; }
.lead { margin: 0 0 12px; color: var(--soft); }
.note { margin: 6px 0 0; color: var(--soft); font-size: 12.5px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 24px 0 0; }
.tiles div { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 16px; }
.tiles b {
  display: block; font-size: 22px; font-weight: 650; font-variant-numeric: tabular-nums;
  letter-spacing: -.01em;
}
.tiles span { color: var(--soft); font-size: 13px; }
.remarks h2 { margin-top: 36px; margin-bottom: 10px; }
.remarks ul {
  list-style: none; margin: 0; padding: 0; background: var(--card); border: 1px solid var(--rule);
  border-radius: 10px;
}
.remarks li { padding: 9px 16px 9px 36px; border-top: 1px solid var(--rule); position: relative; }
.remarks li:first-child { border-top: 0; }
.remarks li::before {
  content: ""; position: absolute; left: 16px; top: 16px; width: 9px; height: 9px;
  border-radius: 50%; background: var(--known);
}
.remarks li.waste::before { background: var(--waste); border-radius: 2px; }
.remarks li.trouble::before { background: var(--trouble); border-radius: 0; transform: rotate(45deg); }
details { margin-top: 10px; }
summary { cursor: pointer; color: var(--soft); margin-bottom: 10px; }
.remarks a { white-space: nowrap; font-size: 13px; }
.cards { columns: 2 518px; column-gap: 16px; }
.card {
  background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: 18px 18px 20px; break-inside: avoid; margin: 0 0 16px; scroll-margin-top: 12px;
  container-type: inline-size;
}
.plot { overflow-x: auto; }
svg { display: block; width: 100%; height: auto; }
svg.narrow { min-width: 300px; max-width: 420px; }
svg.wide { display: none; min-width: 480px; max-width: 640px; }
@container (min-width: 480px) { svg.wide { display: block; } svg.narrow { display: none; } }
svg text { font-size: 11px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg text.name, svg text.figure { fill: var(--ink); }
svg .grid { stroke: var(--grid); }
svg .base { stroke: var(--c6); }
svg .limit { stroke: var(--c2); stroke-dasharray: 4 3; }
svg text.limit-text { fill: var(--c2); paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
svg .spot { fill: transparent; }
svg .spot:hover { fill: var(--ink); fill-opacity: .08; }
svg .line { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
svg .area { fill-opacity: .16; stroke: none; }
.dashed { stroke-dasharray: 5 4; }
.c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .c6 { fill: var(--c6); }
.s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); } .s3 { stroke: var(--c3); }
.s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); } .s6 { stroke: var(--c6); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 4px 0 0; font-size: 12.5px; color: var(--soft); }
.legend i {
  display: inline-block; width: 18px; height: 3px; border-radius: 2px; margin-right: 7px;
  vertical-align: middle; background: var(--c6);
}
.legend i.c1 {
  background: var(--c1); } .legend i.c2 { background: var(--c2);
  } .legend i.c3 { background: var(--c3);
}
.legend i.c4 { background: var(--c4); } .legend i.c5 { background: var(--c5); }
.legend i.dashed { background: repeating-linear-gradient(90deg, var(--c1) 0 5px, transparent 5px 9px); }
.numbers {
  margin-top: 14px; max-height: 336px; overflow: auto; border-top: 1px solid var(--rule);
  background:
    linear-gradient(to left, var(--card) 14px, transparent 28px) right / 28px 100% local,
    linear-gradient(to left, var(--shade), transparent) right / 14px 100% scroll;
  background-repeat: no-repeat;
}
table { width: 100%; border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th {
  position: sticky; top: 0; background: var(--card); color: var(--soft); font-weight: 600;
  text-align: right; padding: 7px 0 5px 14px;
}
td { text-align: right; padding: 4px 0 4px 14px; border-top: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child {
  text-align: left; padding-left: 0; min-width: 8em; overflow-wrap: anywhere; white-space: normal;
  position: sticky; left: 0; background: var(--card);
}
th:first-child { z-index: 1; }
thead th:empty { padding: 0; }
footer { margin-top: 48px; color: var(--soft); font-size: 13px; }
@media (max-width: 640px) {
  main { padding: 24px 12px 40px; }
  h1 { font-size: 24px; }
  .card { padding: 14px 14px 16px; }
  .tiles { grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); }
  .numbers { max-height: 70vh; }
}
@media print { .numbers { max-height: none; } }
"""
