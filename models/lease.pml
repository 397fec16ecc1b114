// The lease of one route: whoever was paused, killed or late, nobody settles what another holds, and it ends.
//
// Steps that stand for a statement cite it (`= file name`, below src/carillon); the others are the world: a process
// dies, a pause outlasts a lease, a wait is over. A cited statement is one step because PostgreSQL judges and changes
// a row under its lock, and SQLite has one writer.
//
// Shipped rule: a token. Known-bad rules: STATE (settle whatever is being worked on), IDONLY (settle by id),
// BLINDEXTEND (renew by id), COUNTLATE (count an attempt when it is settled), NOEXPIRY (a
// lease lasts until it is given back).

#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef EXPIRIES
#define EXPIRIES 2
#endif
#define BUDGET 2
#define ME (_pid + 1)

mtype = { open, published, dead_letter };
mtype = { finish, retry, bury, defer };

mtype status = open;
bool due = true;       // next_attempt_at <= clock_timestamp()
byte token = 0;        // claim_token; 0 is NULL, else its holder: nobody holds two claims of one route at once
byte attempts = 0;     // attempt_count
byte calls = 0;        // what the vendor saw
byte crashes = 0;
byte expiries = 0;
bool deferred = false;

#if defined(STATE)
#define MAY_SETTLE(verdict) (status == open && token != 0)
#elif defined(IDONLY)
#define MAY_SETTLE(verdict) (true)
#else
#define MAY_SETTLE(verdict) (status == open && (token == ME || verdict == finish))
#endif

#ifdef BLINDEXTEND
#define MAY_EXTEND (status == open && token != 0)
#else
#define MAY_EXTEND (status == open && token == ME)
#endif

#ifdef COUNTLATE
#define AT_CLAIM 0
#define AT_SETTLE 1
#else
#define AT_CLAIM 1
#define AT_SETTLE 0
#endif

// = ledger/postgres/ledger.sql settle
// = ledger/postgres/settle.sql settle_finished
// = ledger/sqlite/ledger.sql settle
inline settle(verdict) {
  d_step {
    if
    :: MAY_SETTLE(verdict) ->
      assert(status == open);
      assert(verdict == finish || token == ME);
      if
      :: verdict == finish -> status = published
      :: verdict == bury -> status = dead_letter
      :: verdict == defer -> attempts = (attempts > 0 -> attempts - 1 : 0)
      :: verdict == retry -> attempts = attempts + AT_SETTLE
      fi;
      token = 0;
      due = false
    :: else
    fi;
    attempt = 0
  }
}

// A process that dies says nothing, and another starts in its place.
#define DIES d_step { crashes < CRASHES -> crashes++; attempt = 0 } goto idle

active [WORKERS] proctype worker() {
  byte attempt = 0;

idle:
  if
  :: status != open -> goto end
  :: d_step {
      // = ledger/postgres/claim.sql claim
      // = ledger/sqlite/claim.sql claim
      status == open && due ->
      token = ME;
      attempts = attempts + AT_CLAIM;
      attempt = attempts;
      due = false
    }
  fi;

holding:
  if
  :: DIES
  :: attempt > BUDGET -> settle(bury); goto idle
  :: attempt <= BUDGET && !deferred -> deferred = true; settle(defer); goto idle
  :: attempt <= BUDGET -> calls++
  fi;

// The vendor has the message; what it answered shows in the verdict.
calling:
  if
  :: DIES
  :: d_step {
      // = ledger/postgres/ledger.sql extend
      // = ledger/sqlite/ledger.sql extend
      // Before it is due, renewal changes nothing that could be seen here.
      due ->
      if
      :: MAY_EXTEND -> assert(token == ME); due = false
      :: else
      fi
    }
    goto calling
  :: settle(finish); goto idle
  :: attempt < BUDGET -> settle(retry); goto idle
  :: attempt >= BUDGET -> settle(bury); goto idle
  fi;

end:
  assert(token == 0 && calls <= BUDGET)
}

// A retry's wait ends; a lease ends when its holder is dead or was paused for longer.
active proctype time() {
end:
  do
  :: status == open && token == 0 && !due -> due = true
#ifndef NOEXPIRY
  :: d_step { status == open && token != 0 && !due && expiries < EXPIRIES + crashes -> expiries++; due = true }
#endif
  :: status != open -> break
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

// The world does harm CRASHES and EXPIRIES times; then everything comes to its end.
ltl live { <> (status != open) }
#endif
