// What can happen to a run, in words and colours: one row for each kind of event that an engine tells (`coordinator/kinds.py`; a test holds it).

/** @typedef {"bad"|"warn"|"good"|"accent"|"violet"} Tone */
/** name: in words. aloud: a screen reader says it. marked: the scrubber of a recording has a mark for it, and its buttons lead there.
 * line: the curves have a line for it, of this colour. @typedef {{tone: Tone|null, name: string, aloud?: boolean, marked?: boolean, line?: string}} Row */

/** @type {Record<string, Row>} */
export const KINDS = {
  kill: { tone: "bad", name: "kill", aloud: true, marked: true, line: "--bad" },
  site_lost: { tone: "bad", name: "site lost", aloud: true, marked: true, line: "--bad" },
  failed: { tone: "bad", name: "failed", aloud: true, marked: true, line: "--bad" },
  lost: { tone: "bad", name: "all replicas lost", aloud: true, marked: true, line: "--bad" },
  rows_lost: { tone: "bad", name: "rows lost", aloud: true, marked: true, line: "--bad" },
  begun_anew: { tone: "bad", name: "begun anew", aloud: true, marked: true, line: "--bad" },
  recovery_waits: { tone: "warn", name: "recovery waits", aloud: true },
  take_over: { tone: "warn", name: "take-over", aloud: true, marked: true },
  copies: { tone: "accent", name: "catch-up" },
  copy_dropped: { tone: "warn", name: "copy dropped" },
  redundancy: { tone: "good", name: "redundancy", aloud: true, marked: true, line: "--good" },
  recovered_in_place: { tone: "good", name: "recovered in place", aloud: true, marked: true, line: "--good" },
  restarted: { tone: "good", name: "restarted", aloud: true, marked: true, line: "--good" },
  silent: { tone: "warn", name: "region is silent", aloud: true, marked: true },
  believed: { tone: "good", name: "region is believed", aloud: true, marked: true, line: "--good" },
  site_joined: { tone: "good", name: "site joined", aloud: true, marked: true },
  site_emptied: { tone: "violet", name: "site empty" },
  site_left: { tone: "violet", name: "site left", aloud: true, marked: true },
  move: { tone: "accent", name: "move" },
  move_dropped: { tone: "warn", name: "move given up" },
  move_refused: { tone: "warn", name: "move refused" },
  round: { tone: "violet", name: "round" },
  repartitioned: { tone: "accent", name: "repartitioned", marked: true },
  repartition_refused: { tone: "warn", name: "repartitioning refused" },
  availability: { tone: "accent", name: "availability", aloud: true, marked: true },
  replaced: { tone: "accent", name: "new version", aloud: true, marked: true },
  scaling: { tone: "accent", name: "number of sites", marked: true },
  scaling_waits: { tone: "warn", name: "too few sites" },
  overloaded: { tone: "warn", name: "more than the most sites can do" },
  newcomer: { tone: null, name: "new at a source" },
  table_refreshed: { tone: null, name: "table read anew" },
  refresh_failed: { tone: "warn", name: "table not read anew" },
  shedding: { tone: "warn", name: "rows left out", aloud: true, marked: true },
  never_shed: { tone: null, name: "never left out" },
  shedding_ended: { tone: "good", name: "all rows again", aloud: true, marked: true },
  not_backed_up: { tone: "warn", name: "not backed up", aloud: true, marked: true },
  disk_trouble: { tone: "warn", name: "trouble with a disk" },
  checkpoint_completed: { tone: "good", name: "checkpoint" },
  checkpoint_dropped: { tone: "warn", name: "checkpoint given up" },
  checkpoint_passed_over: { tone: "warn", name: "checkpoint passed over" },
  user_code_slow: { tone: "warn", name: "user code does not return", marked: true },
  user_code_back: { tone: "good", name: "user code is back" },
  journal_waits: { tone: "warn", name: "journal waits", aloud: true, marked: true },
  journal_back: { tone: "good", name: "journal is back", marked: true },
  clock_behind: { tone: "warn", name: "clock behind" },
  standby_waits: { tone: null, name: "standby waits" },
  standby_takes_over: { tone: "warn", name: "standby takes over", aloud: true, marked: true },
  standby_ends: { tone: null, name: "standby ends" },
};

/** A row for any kind, also of a newer engine. @param {string} kind @returns {Row} */
export const kindOf = (kind) => KINDS[kind] ?? { tone: null, name: kind.replaceAll("_", " ") };
