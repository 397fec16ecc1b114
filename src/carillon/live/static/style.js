// How the inbox looks. A page changes it by variables (`--carillon-accent`) and by parts (`carillon-inbox::part(item)`).

export const SHEET = new CSSStyleSheet();

SHEET.replaceSync(`
:host {
  --_accent: var(--carillon-accent, #2f5fd0);
  --_on-accent: var(--carillon-on-accent, #fff);
  --_back: var(--carillon-background, #fff);
  --_raised: var(--carillon-surface, #f4f5f8);
  --_text: var(--carillon-text, #16181d);
  --_muted: var(--carillon-muted, #5b6270);
  --_line: var(--carillon-border, #e2e5eb);
  --_unread: var(--carillon-unread, color-mix(in srgb, var(--_accent) 7%, var(--_back)));
  --_count: var(--carillon-count, #c5221f);
  --_radius: var(--carillon-radius, 12px);
  --_shadow: var(--carillon-shadow, 0 1px 2px rgb(15 20 30 / 8%), 0 12px 32px rgb(15 20 30 / 16%));
  display: block; color: var(--_text); font: var(--carillon-font, 15px/1.45 system-ui, -apple-system, "Segoe UI", sans-serif);
  -webkit-font-smoothing: antialiased;
}
@media (prefers-color-scheme: dark) {
  :host(:not([theme="light"])) {
    --_accent: var(--carillon-accent, #8fb2ff); --_on-accent: var(--carillon-on-accent, #0c1322);
    --_back: var(--carillon-background, #16181d); --_raised: var(--carillon-surface, #23262e);
    --_text: var(--carillon-text, #eceef2); --_muted: var(--carillon-muted, #a3aab8); --_line: var(--carillon-border, #30343d);
    --_unread: var(--carillon-unread, color-mix(in srgb, var(--_accent) 9%, var(--_back)));
    --_count: var(--carillon-count, #d93a36);
    --_shadow: var(--carillon-shadow, 0 0 0 1px #30343d, 0 16px 40px rgb(0 0 0 / 55%));
  }
}
:host([theme="dark"]) {
  --_accent: var(--carillon-accent, #8fb2ff); --_on-accent: var(--carillon-on-accent, #0c1322);
  --_back: var(--carillon-background, #16181d); --_raised: var(--carillon-surface, #23262e);
  --_text: var(--carillon-text, #eceef2); --_muted: var(--carillon-muted, #a3aab8); --_line: var(--carillon-border, #30343d);
  --_unread: var(--carillon-unread, color-mix(in srgb, var(--_accent) 9%, var(--_back)));
  --_count: var(--carillon-count, #d93a36);
  --_shadow: var(--carillon-shadow, 0 0 0 1px #30343d, 0 16px 40px rgb(0 0 0 / 55%));
}
:host([mode="bell"]) { display: inline-block; position: relative; }
:host([hidden]), [hidden] { display: none !important; }
* { box-sizing: border-box; }
button { font: inherit; color: inherit; background: none; border: 0; padding: 0; margin: 0; cursor: pointer; }
a { color: inherit; }
svg { display: block; inline-size: 20px; block-size: 20px; fill: none; stroke: currentColor; stroke-width: 1.7; stroke-linecap: round; stroke-linejoin: round; }
:focus-visible { outline: 2px solid var(--_accent); outline-offset: 2px; border-radius: 8px; }
.quiet { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

.bell { position: relative; display: grid; place-items: center; inline-size: 40px; block-size: 40px; border-radius: 50%; }
.bell:hover, .bell[aria-expanded="true"] { background: color-mix(in srgb, currentColor 9%, transparent); }
.bell svg { inline-size: 24px; block-size: 24px; }
.count {
  position: absolute; inset-block-start: 1px; inset-inline-start: 22px; min-inline-size: 17px; block-size: 17px; padding-inline: 4px; border-radius: 9px;
  background: var(--_count); color: #fff; font-size: 11px; font-weight: 650; line-height: 17px; text-align: center; font-variant-numeric: tabular-nums;
  box-shadow: 0 0 0 2px var(--carillon-behind-bell, var(--_back));
}
.bell.offline svg { opacity: .55; }

.panel { display: flex; flex-direction: column; background: var(--_back); border: 1px solid var(--_line); border-radius: var(--_radius); overflow: hidden; }
:host([mode="bell"]) .panel {
  position: absolute; z-index: 1000; inset-block-start: calc(100% + 8px); inset-inline-end: 0; inline-size: var(--carillon-width, 400px);
  max-block-size: var(--carillon-height, min(620px, calc(100vh - 96px))); border-color: transparent; box-shadow: var(--_shadow);
}
:host([mode="bell"][side="start"]) .panel, :host([mode="bell"]) .panel.turned { inset-inline: 0 auto; }
:host([mode="bell"][side="start"]) .panel.turned { inset-inline: auto 0; }
@media (max-width: 520px) {
  :host([mode="bell"]) .panel { position: fixed; inset: 0; inline-size: auto; max-block-size: none; border: 0; border-radius: 0; }
}

.head { display: flex; align-items: center; gap: 4px; padding: 14px 10px 6px 18px; }
[dir="rtl"] .head { padding: 14px 18px 6px 10px; }
h2 { flex: 1; display: flex; align-items: baseline; gap: 8px; margin: 0; font-size: 18px; font-weight: 650; letter-spacing: -.01em; line-height: 36px; }
h2 small { font-size: 13px; font-weight: 450; color: var(--_muted); letter-spacing: 0; }
.tool { display: grid; place-items: center; inline-size: 36px; block-size: 36px; border-radius: 8px; color: var(--_muted); flex: none; }
.tool:hover { background: var(--_raised); color: var(--_text); }
.tool:disabled { opacity: .35; cursor: default; background: none; }
[dir="rtl"] .turns svg { transform: scaleX(-1); }

.tabs { display: flex; gap: 18px; padding-inline: 18px; border-block-end: 1px solid var(--_line); }
.tabs button { padding: 8px 0 9px; color: var(--_muted); font-weight: 550; font-size: 14px; border-block-end: 2px solid transparent; margin-block-end: -1px; }
.tabs button:hover { color: var(--_text); }
.tabs button[aria-selected="true"] { color: var(--_text); border-block-end-color: var(--_accent); }

.notice { display: flex; align-items: center; gap: 8px; padding: 8px 18px; background: var(--_raised); color: var(--_muted); font-size: 13px; }
.notice::before { content: ""; inline-size: 8px; block-size: 8px; border-radius: 50%; background: #c77700; flex: none; }
.body { overflow-y: auto; overscroll-behavior: contain; flex: 1; min-block-size: 0; scrollbar-width: thin; }
:host([mode="bell"]) .body { min-block-size: 220px; }

h3 { margin: 0; padding: 14px 18px 6px; font-size: 12px; font-weight: 600; color: var(--_muted); letter-spacing: .01em; }
ul { list-style: none; margin: 0; padding: 0; }
li { position: relative; display: grid; grid-template-columns: 40px minmax(0, 1fr); gap: 0 12px; padding: 11px 18px; outline-offset: -2px; }
li + li { box-shadow: inset 0 1px color-mix(in srgb, var(--_line) 65%, transparent); }
li:focus-visible { outline: 2px solid var(--_accent); outline-offset: -3px; border-radius: 10px; }
li:hover { background: var(--_raised); }
li.unread { background: var(--_unread); }
li.unread::before { content: ""; position: absolute; inset-inline-start: 6px; inset-block-start: 27px; inline-size: 7px; block-size: 7px; border-radius: 50%; background: var(--_accent); }
li.opens { cursor: pointer; }
.icon { inline-size: 40px; block-size: 40px; border-radius: 10px; object-fit: cover; background: var(--_raised); }
.glyph { display: grid; place-items: center; color: var(--_accent); background: color-mix(in srgb, var(--_accent) 13%, var(--_back)); }
.said { display: flex; flex-direction: column; gap: 1px; min-inline-size: 0; }
.first { display: flex; align-items: baseline; gap: 10px; }
.title { flex: 1; min-inline-size: 0; font-weight: 500; overflow-wrap: anywhere; text-decoration: none; }
.unread .title { font-weight: 650; }
time { flex: none; font-size: 12px; color: var(--_muted); font-variant-numeric: tabular-nums; }
.text { margin: 0; color: var(--_muted); font-size: 14px; overflow-wrap: anywhere; white-space: pre-line; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.actions { display: flex; flex-wrap: wrap; gap: 8px; margin-block-start: 8px; }
.action { padding: 4px 12px; border: 1px solid var(--_line); border-radius: 8px; font-size: 13px; font-weight: 550; text-decoration: none; background: var(--_back); }
.action:first-child { background: var(--_accent); border-color: var(--_accent); color: var(--_on-accent); }
.action:hover { filter: brightness(1.06); }
.hand { position: absolute; inset-block-start: 5px; inset-inline-end: 12px; display: flex; gap: 2px; padding: 1px; border-radius: 9px; background: var(--_back); box-shadow: 0 0 0 1px var(--_line); opacity: 0; pointer-events: none; }
li:hover .hand, li:focus-within .hand { opacity: 1; pointer-events: auto; }
.hand .tool { inline-size: 28px; block-size: 26px; }
.hand svg { inline-size: 17px; block-size: 17px; }
@media (hover: none) {
  li { grid-template-columns: 40px minmax(0, 1fr) 40px; padding-inline-end: 8px; }
  .hand { position: static; flex-direction: column; justify-content: flex-start; opacity: 1; pointer-events: auto; background: none; box-shadow: none; margin-block-start: -6px; }
  .hand .tool { inline-size: 40px; block-size: 36px; }
}

.more { display: block; inline-size: calc(100% - 36px); margin: 12px 18px 16px; padding: 9px; border: 1px solid var(--_line); border-radius: 9px; font-weight: 550; font-size: 14px; }
.more:hover { background: var(--_raised); }
.empty { display: grid; justify-items: center; gap: 4px; padding: 56px 32px 64px; text-align: center; color: var(--_muted); }
.empty svg { inline-size: 44px; block-size: 44px; stroke-width: 1.3; margin-block-end: 10px; color: var(--_accent); opacity: .8; }
.empty b { color: var(--_text); font-weight: 600; font-size: 16px; }
.bone { display: grid; grid-template-columns: 40px 1fr; gap: 12px; padding: 14px 18px; }
.bone i { display: block; border-radius: 8px; background: var(--_raised); min-block-size: 12px; animation: breathe 1.4s ease-in-out infinite alternate; }
.bone i:first-child { block-size: 40px; border-radius: 10px; }
.bone span { display: grid; gap: 8px; align-content: center; }
.bone i:last-child { inline-size: 60%; }
@keyframes breathe { to { opacity: .45; } }

.choices { padding: 4px 18px 20px; }
.choices > p { margin: 4px 0 12px; color: var(--_muted); font-size: 14px; }
fieldset { margin: 0; padding: 14px 0; border: 0; border-block-start: 1px solid var(--_line); min-inline-size: 0; }
legend { float: inline-start; inline-size: 100%; padding: 0; font-weight: 600; }
fieldset p { clear: both; margin: 0 0 8px; color: var(--_muted); font-size: 13px; }
.ways { display: flex; flex-wrap: wrap; gap: 8px; clear: both; }
.way { display: inline-flex; align-items: center; gap: 8px; padding: 6px 12px; border: 1px solid var(--_line); border-radius: 999px; font-size: 13px; cursor: pointer; }
.way:hover { background: var(--_raised); }
.way:has(:checked) { border-color: var(--_accent); background: color-mix(in srgb, var(--_accent) 11%, var(--_back)); }
.way:has(:focus-visible) { outline: 2px solid var(--_accent); outline-offset: 2px; }
.way input { accent-color: var(--_accent); inline-size: 15px; block-size: 15px; margin: 0; }

.toast { display: flex; align-items: center; gap: 16px; margin: 0 12px 12px; padding: 9px 14px; border-radius: 10px; background: var(--_text); color: var(--_back); font-size: 14px; }
.toast span { flex: 1; }
.toast button { font-weight: 650; text-decoration: underline; text-underline-offset: 3px; }
@media (prefers-reduced-motion: reduce) { * { animation: none !important; transition: none !important; } }
`);
