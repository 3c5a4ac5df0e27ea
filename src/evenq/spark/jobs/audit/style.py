"""How the report looks: light and dark, wide and narrow, on paper too."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark;
  --paper: #ffffff; --ground: #f4f6f8; --ink: #1f2933; --muted: #616e7c; --faint: #9aa5b1; --grid: #e4e7eb;
  --good: #0b7a55; --good-ground: #e3f5ec; --bad: #b3400a; --bad-ground: #fdeee3; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #171e26; --ground: #0e1319; --ink: #e6ebf0; --muted: #9aa8b6; --faint: #5c6b7a; --grid: #27323d;
  --good: #4fd1a1; --good-ground: #10291f; --bad: #ff9d5c; --bad-ground: #33200f; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 Inter, "Segoe UI", "Helvetica Neue",
  Arial, "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 60px; }
header { display: flex; flex-wrap: wrap; gap: 4px 24px; align-items: baseline; margin-bottom: 18px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
.mark { color: var(--accent); font-weight: 700; letter-spacing: 0.02em; }
.about { color: var(--muted); margin-left: auto; }
h2 { font-size: 20px; margin: 40px 0 12px; letter-spacing: -0.01em; }
h2 small { font-weight: 400; font-size: 14px; color: var(--muted); margin-left: 10px; }
h3 { font-size: 14px; margin: 0 0 10px; }
h3 small { font-weight: 400; color: var(--muted); margin-left: 6px; }
.card { background: var(--paper); border: 1px solid var(--grid); border-radius: 10px; padding: 16px 18px; }
.verdict { border-left: 6px solid var(--good); background: var(--good-ground); padding: 18px 22px; }
.verdict.bad { border-left-color: var(--bad); background: var(--bad-ground); }
.verdict p { margin: 0; font-size: 19px; font-weight: 600; line-height: 1.35; }
.verdict ul { margin: 12px 0 0; padding: 0; list-style: none; }
.verdict li { padding: 7px 0 7px 0; border-top: 1px solid color-mix(in srgb, var(--ink) 10%, transparent);
  display: grid; grid-template-columns: 172px 1fr; gap: 14px; }
.verdict li b { color: var(--bad); }
.verdict li span { overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 16px 0 0; }
.tile { padding: 13px 16px; }
.tile .name { color: var(--muted); font-size: 13px; display: flex; justify-content: space-between; gap: 8px; }
.tile .value { font-size: 23px; font-weight: 650; line-height: 1.3; letter-spacing: -0.01em; }
.tile .more { color: var(--muted); font-size: 12.5px; }
.state { font-size: 12px; font-weight: 600; color: var(--good); }
.bad > .name .state, .bad .value { color: var(--bad); }
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; }
.wide { grid-column: 1 / -1; }
svg { width: 100%; height: auto; display: block; }
.note { color: var(--muted); margin: 0; }
details.card { margin-top: 10px; padding: 10px 18px; }
summary { cursor: pointer; font-weight: 600; padding: 2px 0; }
summary small { font-weight: 400; color: var(--muted); margin-left: 6px; }
.scroll { overflow: auto; max-height: 440px; margin-top: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: var(--muted); font-weight: 500; position: sticky; top: 0; background: var(--paper);
  box-shadow: 0 1px 0 var(--grid); }
th, td { padding: 5px 26px 5px 0; white-space: nowrap; }
td { border-bottom: 1px solid var(--grid); }
td.text { white-space: normal; overflow-wrap: anywhere; }
.number { text-align: right; }
tr.alarm td { color: var(--bad); font-weight: 600; }
footer { color: var(--muted); margin-top: 40px; font-size: 13px; }
footer dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 8px 0; }
footer dt { color: var(--ink); }
footer dd { margin: 0; }
@media (max-width: 820px) { .grid { grid-template-columns: 1fr; } .verdict li { grid-template-columns: 1fr; gap: 0; }
  .about { margin-left: 0; } }
@media print { body { background: none; } .scroll { max-height: none; } }
"""
