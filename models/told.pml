// What a route tells of its attempts: every success that was settled is told exactly once, by the route or by a row, and a settlement
// that comes again because its answer was lost is recognised.
//
// Steps that stand for code cite it (`= file name`, below src/carillon); the others are the world: an answer is lost, a lease ends, a vendor
// takes its word back. A worker keeps its token until its settlement was answered, and sends the settlement again until then.
//
// Shipped rule: the token stays in the route that it finished, and what the route told becomes a row before the route is opened again.
// Known-bad rules: BLINDREPEAT (a repeat does not look for its token), BLINDNOTE (it writes a row nevertheless), FORGET (a reopened
// route keeps nothing), TWICE (a reopened route goes on telling what is a row by now).

#ifndef WORKERS
#define WORKERS 3
#endif
#define CLAIMS 4
#define LOST 2
#define REVOKED 2

byte token = 0;                   // claim_token; 0 is NULL
byte drawn = 0;                   // claim_tokens
bool open = true;                 // status IN ('pending', 'failed')
byte finished_by = 0;             // 0 is NULL
byte row[CLAIMS + 1];             // attempts, by token: NONE, LATE or GOOD
bool settled[CLAIMS + 1];         // its settlement reached the ledger
bool counted[CLAIMS + 1];         // and changed the route
byte told = 0;
byte lost = 0;
byte revoked = 0;
byte asked = 0;

#define NONE 0
#define LATE 1
#define GOOD 2
#define OVER (!open && (revoked == REVOKED || drawn == CLAIMS))

inline look() {
  asked = 1;
  do
  :: asked <= CLAIMS ->
    told = (row[asked] != NONE -> 1 : 0) + (finished_by == asked -> 1 : 0);
    assert(told == settled[asked]);
    asked++
  :: else -> break
  od;
  asked = 0;
  told = 0
}

active [WORKERS] proctype worker() {
  byte mine = 0;
  bool applied = false;

end:
  do
  :: d_step {
      // = ledger/postgres/claim.sql claim
      // = ledger/sqlite/claim.sql claim
      mine == 0 && open && token == 0 && drawn < CLAIMS ->
      drawn++;
      token = drawn;
      mine = drawn
    }
  :: mine != 0 ->
    d_step {
      if
      :: open && token == mine ->
        // = ledger/postgres/settle.sql settle_finished
        // = ledger/sqlite/settle.sql settle_finished
        finished_by = mine;
        applied = true
      :: open && token != mine ->
        // = ledger/postgres/ledger.sql settle
        // = ledger/sqlite/ledger.sql settle_note
        row[mine] = GOOD;
        applied = true
      :: else ->
        // = ledger/sqlite/ledger.sql settle_answered
#ifdef BLINDREPEAT
        applied = (row[mine] == GOOD);
#else
        applied = (row[mine] == GOOD || finished_by == mine);
#endif
        assert(applied == counted[mine]);
        if
#ifdef BLINDNOTE
        :: row[mine] == NONE -> row[mine] = LATE
#else
        :: row[mine] == NONE && finished_by != mine -> row[mine] = LATE
#endif
        :: else -> skip
        fi
      fi;
      if
      :: applied && open -> open = false; token = 0; counted[mine] = true
      :: else -> skip
      fi;
      settled[mine] = true;
      look()
    }
    if
    :: applied = false; mine = 0
    // The answer is lost, and the same settlement comes again. That of one that came too late tells nothing new.
    :: applied && lost < LOST -> lost++; applied = false
    fi
  :: OVER && mine == 0 -> break
  od
}

// A lease ends, and the route can be claimed again.
active proctype time() {
end:
  do
  :: d_step { open && token != 0 && drawn < CLAIMS -> token = 0 }
  :: OVER -> break
  od
}

// A vendor says of a message that it accepted that it failed.
active proctype vendor() {
end:
  do
  :: d_step {
      // = ledger/postgres/receipts.sql receipts_change
      // = ledger/sqlite/receipts.sql receipts_keep
      !open && revoked < REVOKED && drawn < CLAIMS ->
      revoked++;
#ifndef FORGET
      if
      :: finished_by != 0 -> row[finished_by] = GOOD
      :: else -> skip
      fi;
#endif
#ifndef TWICE
      finished_by = 0;
#endif
      open = true;
      look()
    }
  :: OVER -> break
  od
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

ltl live { <> (!open) }
#endif
