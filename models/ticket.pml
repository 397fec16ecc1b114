// Tickets and leases: a route that is open stands in exactly one place, in `due`, in one lease, or among those that wait for their time;
// it is settled once, and nobody calls a route that was cancelled before the call.
//
// Steps that stand for code cite it (`= file name`, below src/carillon); the others are the world: a worker sleeps past its lease or dies.
//
// Shipped rule: the row of `due` stands for the route, a lease that ran out gives new tickets, a lease ends when nothing is left of it, and
// an adopted success takes its route out of `due`. Known-bad rules: EARLY (a lease ends with its first settlement), SAMETICKET (a lease
// that ran out leaves the ticket), NOVOID (an adopted success leaves the row of `due`), BLINDCANCEL (a cancellation does not ask for the
// row of `due`), NOEXPIRY (a lease never runs out).

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef LAPSES
#define LAPSES 2
#endif
#ifndef FAILURES
#define FAILURES 2
#endif
#ifndef CANCELS
#define CANCELS 1
#endif
#define ROUTES 2
#define AT(w, r) ((w) * ROUTES + (r))

byte next_ticket = ROUTES + 1;
byte ticket[ROUTES];              // routes.ticket
byte queued[ROUTES];              // the ticket in the route's row of `due`
bool later[ROUTES];               // waits for its time
bool ended[ROUTES];
byte settled[ROUTES];             // how often a settlement ended it
byte leased[WORKERS * ROUTES];    // leases.tickets of the worker's lease
byte mine[WORKERS * ROUTES];      // the claims that the worker still has
bool over[WORKERS];               // the lease ran out
byte lapses = 0;
byte failures = 0;
byte cancels = 0;
byte place = 0;
bool laid = false;                // the routes are accepted

#define DONE (ended[0] && ended[1])

// Counts where an open route stands.
inline stands(r) {
  place = (queued[r] != 0 -> 1 : 0) + (later[r] -> 1 : 0);
  if
  :: ticket[r] != 0 && (leased[AT(0, r)] == ticket[r]) -> place++
  :: else -> skip
  fi;
  if
  :: ticket[r] != 0 && (leased[AT(1, r)] == ticket[r]) -> place++
  :: else -> skip
  fi;
  assert(ended[r] || place == 1);
  place = 0
}

inline lapse(w, r) {
  if
  :: leased[AT(w, r)] != 0 && leased[AT(w, r)] == ticket[r] && !ended[r] ->
#ifndef SAMETICKET
    ticket[r] = next_ticket;
    next_ticket++;
#endif
    queued[r] = ticket[r]
  :: else -> skip
  fi;
  leased[AT(w, r)] = 0
}

inline take(w, r) {
  if
  :: queued[r] != 0 ->
    assert(queued[r] == ticket[r] && !ended[r]);
    mine[AT(w, r)] = queued[r];
    leased[AT(w, r)] = queued[r];
    queued[r] = 0
  :: else -> skip
  fi
}

active [WORKERS] proctype worker() {
  byte me = _pid;
  byte route = 0;

  d_step {
    // = ledger/postgres/ledger.sql enrol
    // = ledger/sqlite/claim.sql queue_tickets
    if
    :: me == 0 -> ticket[0] = 1; queued[0] = 1; ticket[1] = 2; queued[1] = 2; laid = true
    :: else -> skip
    fi
  }
  laid;
end:
  do
  :: DONE -> break
  :: d_step {
      // = ledger/postgres/claim.sql claim
      // = ledger/sqlite/claim.sql lapse
      // = ledger/sqlite/claiming.py _claim_due
      (queued[0] != 0 || queued[1] != 0 || over[1 - me]) && mine[AT(me, 0)] == 0 && mine[AT(me, 1)] == 0 && leased[AT(me, 0)] == 0 && leased[AT(me, 1)] == 0 ->
      if
      :: over[1 - me] ->
        lapse(1 - me, 0);
        lapse(1 - me, 1);
        over[1 - me] = false
      :: else -> skip
      fi;
      take(me, 0);
      take(me, 1);
      stands(0);
      stands(1)
    }
  :: d_step {
      // The worker's own lease ran out and nobody took it apart: its next claim does.
      over[me] && mine[AT(me, 0)] == 0 && mine[AT(me, 1)] == 0 ->
      lapse(me, 0);
      lapse(me, 1);
      over[me] = false;
      stands(0);
      stands(1)
    }
  :: (mine[AT(me, 0)] != 0 || mine[AT(me, 1)] != 0) ->
    if
    :: mine[AT(me, 0)] != 0 -> route = 0
    :: mine[AT(me, 1)] != 0 -> route = 1
    fi;
    if
    :: d_step {
        // = ledger/postgres/settle.sql settle_finished
        // = ledger/postgres/ledger.sql settle
        // = ledger/sqlite/ledger.sql settle_judge
        if
        :: !ended[route] && ticket[route] == mine[AT(me, route)] -> ended[route] = true; settled[route]++; ticket[route] = 0
        :: !ended[route] && ticket[route] != mine[AT(me, route)] ->
          ended[route] = true;
          settled[route]++;
          later[route] = false;
#ifndef NOVOID
          queued[route] = 0;
#endif
          ticket[route] = 0
        :: else -> skip
        fi;
        assert(settled[route] <= 1)
      }
    :: d_step {
        failures < FAILURES ->
        failures++;
        if
        :: !ended[route] && ticket[route] == mine[AT(me, route)] ->
          assert(leased[AT(1 - me, route)] != mine[AT(me, route)]);
          ticket[route] = 0;
          later[route] = true
        :: else -> skip
        fi
      }
    :: d_step {
        // It dies: its lease is all that is left of it.
        lapses < LAPSES ->
        lapses++;
#ifndef NOEXPIRY
        over[me] = true;
#endif
        mine[AT(me, 0)] = 0;
        mine[AT(me, 1)] = 0
      }
    fi;
    d_step {
      // = ledger/leases.py ended_by
      mine[AT(me, route)] = 0;
      if
#ifdef EARLY
      :: !over[me] -> leased[AT(me, 0)] = 0; leased[AT(me, 1)] = 0
#else
      :: !over[me] && mine[AT(me, 0)] == 0 && mine[AT(me, 1)] == 0 -> leased[AT(me, 0)] = 0; leased[AT(me, 1)] = 0
#endif
      :: else -> skip
      fi;
      stands(0);
      stands(1);
      route = 0
    }
  od
}

// Time passes, and a producer cancels.
active [ROUTES] proctype world() {
  byte who = _pid - WORKERS;
end:
  do
  :: DONE -> break
#ifndef NOEXPIRY
  :: d_step {
      // A worker sleeps past its lease and goes on later.
      lapses < LAPSES && mine[AT(who, 0)] + mine[AT(who, 1)] > 0 && !over[who] ->
      lapses++;
      over[who] = true
    }
#endif
  :: d_step {
      // = ledger/sqlite/claim.sql ripe
      later[who] -> later[who] = false; ticket[who] = next_ticket; next_ticket++; queued[who] = ticket[who]
    }
  :: d_step {
      // = ledger/postgres/timing.sql stop_routes
      // = ledger/sqlite/timing.sql stop_routes
#ifdef BLINDCANCEL
      cancels < CANCELS && !ended[who] && ticket[who] != 0 ->
#else
      cancels < CANCELS && !ended[who] && queued[who] != 0 ->
#endif
      cancels++;
      assert(mine[AT(0, who)] != ticket[who] && mine[AT(1, who)] != ticket[who]);
      ended[who] = true;
      queued[who] = 0;
      ticket[who] = 0
    }
  od
}

#ifdef LIVE
ltl live { <> DONE }
#endif
