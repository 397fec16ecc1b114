// A stream read by several readers that die: every entry becomes one row, though the offset lies in another store.
//
// Steps that stand for a command or a statement cite it (`= file name`, below src/carillon); the others are the world.
//
// Shipped rule: the offset moves after the commit, and UNIQUE absorbs what is read again. SAMETX, an offset moved by
// the commit itself, would do as well. Known-bad rules: FIRST (the offset moves before the commit), NODEDUP (no UNIQUE).

#ifndef READERS
#define READERS 3
#endif
#ifndef CRASHES
#define CRASHES 3
#endif
#define ENTRIES 4
#define BATCH 2

byte written = 0;             // entries that producers have added
byte offset = 0;              // the stored offset: every entry up to it counts as read
byte rows[ENTRIES + 1] = 0;   // records and malformed intents, by entry
byte crashes = 0;
byte ended = 0;

#ifdef NODEDUP
#define ROWS_AFTER(entry) rows[entry] + 1
#else
#define ROWS_AFTER(entry) 1
#endif

// = doors/redis_stream/offset.lua advance
// An offset that is ahead stays, and its writer learns that it was overtaken.
#define ADVANCE(to) \
  if \
  :: to > offset -> offset = to \
  :: else -> at = offset \
  fi

#define DIES d_step { crashes < CRASHES -> crashes++; at = 0; last = 0; } goto start

active proctype producer() {
  do
  :: written < ENTRIES -> written++
  :: else -> break
  od
}

active [READERS] proctype reader() {
  byte at = 0;
  byte last = 0;

// = doors/redis_stream/offset.py load
start:
  at = offset;

reading:
  if
  :: at == ENTRIES -> goto end
  :: d_step {
      // = doors/redis_stream/wire.py read
      at < written ->
      last = (at + BATCH < written -> at + BATCH : written)
    }
  fi;

#ifdef FIRST
  if
  :: d_step { ADVANCE(last) }
  fi;
#endif

offering:
  if
  :: DIES
  :: d_step {
      // One commit writes one entry or several, from the first on.
      // = ledger/postgres/ledger.sql enrol
      // = ledger/postgres/ledger.sql keep_malformed
      // = ledger/sqlite/ledger.sql enrol
      // = ledger/sqlite/ledger.sql keep_malformed
      at < last ->
      at++;
      rows[at] = ROWS_AFTER(at);
#ifdef SAMETX
      ADVANCE(at)
#endif
    }
    goto offering
  :: at >= last -> skip
  fi;

#if !defined(FIRST) && !defined(SAMETX)
  if
  :: DIES
  :: d_step { ADVANCE(at) }
  fi;
#endif
  goto reading;

end:
  ended++
}

active proctype auditor() {
  byte entry;
  ended == READERS ->
  assert(offset == ENTRIES);
  for (entry : 1 .. ENTRIES) {
    assert(rows[entry] > 0);    // nothing is lost
    assert(rows[entry] < 2)     // nothing is taken twice
  }
}

#ifdef LIVE
// Standing still for ever is a way to go on: with this, what waits in vain is seen.
bool tick = false;
active proctype clock() {
end:
  do
  :: tick = !tick
  od
}

ltl live { <> (ended == READERS) }
#endif
