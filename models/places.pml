// The places of one group with a cap: however claims of several processes overlap, no more calls run than the cap, and
// all routes are sent.
//
// Steps that stand for code cite it (`= file name`, below src/carillon); the others are the world: a process dies, a
// lease ends. A claim is two steps, because PostgreSQL counts what its snapshot shows and writes later; the fence joins
// them. SQLite has one writer, so its claim is one.
//
// Shipped rule: a fence, and claims ahead that take over the place of a call that has ended, also later, as long as the
// settlement of that call is not sent. Known-bad rules: NOFENCE (what the snapshot counted is taken), EAGER (a claim
// ahead calls at once), ORPHAN (a claim ahead calls if the call it waited for has ended), LATE (a process keeps a place
// until it hears that the call is settled), NOEXPIRY (a dead process keeps its places).

#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef ROUTES
#define ROUTES 5
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define CAP 2

byte waiting = ROUTES;            // in the turns
byte leased = 0;                  // claim_token IS NOT NULL AND turn IS NULL
byte sent = 0;
byte calling = 0;                 // calls that run, of all processes
byte crashes = 0;
byte left_behind = 0;             // leases of processes that died
bool stale[PROCESSES];            // the fence is another one than its snapshot showed
byte calls[PROCESSES];
byte ahead[PROCESSES];
byte ended[PROCESSES];            // calls that ended and whose settlement is not sent
byte kept[PROCESSES];             // places of ended calls that a claim ahead may still take over
byte sending[PROCESSES];          // settlements under way; for LATE: committed, and the process has not heard of it

#ifdef NOFENCE
#define MAY_TAKE(me) (true)
#else
#define MAY_TAKE(me) (!stale[me])
#endif

inline begin(me, number) {
  calls[me] = calls[me] + number;
  calling = calling + number;
  assert(calling <= CAP)
}

active [PROCESSES] proctype claimer() {
  byte me = _pid;
  byte room = 0;
  byte more = 0;
  byte taken = 0;
  byte places = 0;
  byte other = 0;

end:
  do
  :: sent == ROUTES -> break
  :: atomic {
      // = ledger/postgres/claim.sql claim
      // = domain/groups.py turns
      // = outbound/places.py ahead
      waiting > 0 ->
      stale[me] = false;
      if
      :: more = CAP                    // claims ahead that a slow endpoint needs
      :: more = 2 * CAP                // and a fast one
      fi;
      room = CAP + (calls[me] + kept[me] > 0 -> more : 0);
      room = (room > leased -> room - leased : 0);
      places = (CAP > leased -> CAP - leased : 0)
    }
    d_step {
      // = ledger/postgres/claim.sql claim
      // = ledger/sqlite/claim.sql claim
      taken = (room < waiting -> room : waiting);
      if
      :: taken > 0 && MAY_TAKE(me) ->
        leased = leased + taken;
        waiting = waiting - taken;
        other = 0;
        do
        :: other < PROCESSES -> stale[other] = true; other++
        :: else -> break
        od
      :: else -> taken = 0
      fi;
      places = (places < taken -> places : taken);
      other = 0;
      room = 0
    }
    d_step {
      // = outbound/places.py admit
      begin(me, places);
      taken = taken - places;
#ifdef EAGER
      begin(me, taken);
#else
      // = outbound/places.py _take_over
      places = (kept[me] < taken -> kept[me] : taken);
      kept[me] = kept[me] - places;
      begin(me, places);
      taken = taken - places;
      if
      :: calls[me] > 0 -> ahead[me] = ahead[me] + taken
#ifdef ORPHAN
      :: else -> begin(me, taken)
#else
      // = outbound/in_flight.py _give_back
      :: else -> leased = leased - taken; waiting = waiting + taken
#endif
      fi;
#endif
      taken = 0;
      places = 0
    }
  od
}

active [PROCESSES] proctype caller() {
  byte me = _pid - PROCESSES;

end:
  do
  :: d_step {
      // = outbound/places.py ended
      calls[me] > 0 ->
      ended[me]++;
      if
      :: ahead[me] > 0 -> ahead[me]--
      :: else -> calls[me]--; calling--; kept[me]++
      fi
    }
#ifdef LATE
  :: d_step { ended[me] > 0 -> ended[me]--; leased--; sent++; sending[me]++ }
  :: d_step {
      sending[me] > 0 ->
      sending[me]--;
      kept[me] = (kept[me] > ended[me] + sending[me] -> kept[me] - 1 : kept[me])
    }
#else
  :: d_step {
      // = outbound/places.py may_settle
      ended[me] > 0 ->
      ended[me]--;
      sending[me]++;
      kept[me] = (kept[me] > ended[me] -> kept[me] - 1 : kept[me])
    }
  :: d_step {
      // = outbound/places.py may_settle
      ended[me] > 0 && kept[me] > 0 ->
      ended[me]--;
      sending[me]++;
      kept[me]--
    }
  :: d_step {
      // = ledger/postgres/settle.sql settle_finished
      // = outbound/places.py settled
      sending[me] > 0 ->
      sending[me]--;
      leased--;
      sent++
    }
#endif
  :: d_step {
      crashes < CRASHES && calls[me] > 0 ->
      crashes++;
      left_behind = left_behind + calls[me] + ahead[me] + ended[me] + sending[me];
      calling = calling - calls[me];
      calls[me] = 0;
      ahead[me] = 0;
      ended[me] = 0;
      kept[me] = 0;
      sending[me] = 0
    }
  :: sent == ROUTES -> break
  od
}

// The leases of a dead process end: what it held stands in the turns again.
active proctype time() {
end:
  do
#ifndef NOEXPIRY
  :: d_step { left_behind > 0 -> left_behind--; leased--; waiting++ }
#endif
  :: sent == ROUTES -> break
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

ltl live { <> (sent == ROUTES) }
#endif
