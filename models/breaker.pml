// The breaker of one provider, shared by a fleet: after a failure one probe at a time, and it closes again by itself.
//
// Steps that stand for a script cite it (`= file name`, below src/carillon); the others are the world: a provider fails
// for a while, a worker dies in the middle of its probe, time passes. A cited verb is one step because Redis runs
// nothing beside a script; the machine of domain/breaker.py takes the same steps in one process.
//
// Shipped rule: whoever may probe is decided and written down at once, and the right of a dead one runs out. Known-bad
// rules: TWOSTEP (look, then take), NOEXPIRY (the right of a dead prober never comes back). LATE shows what the shipped
// rule relies on: that a call has ended before the breaker's open time is over.

#ifndef WORKERS
#define WORKERS 5
#endif
#define DEATHS 3
#define FAILURES 8          // how often the provider fails before it is well
#define THRESHOLD 2         // failure_threshold
#define ENOUGH 2            // success_threshold
#define MAX_PROBES 1        // half_open_max_probes

mtype = { closed, opened, half_open };

mtype state = closed;
bool waited = false;        // open_seconds are over
byte failures = 0;
byte successes = 0;
byte probes = 0;            // rights to probe that are given out
byte left_behind = 0;       // those of them whose holders are dead
byte probing = 0;           // probes under way
byte calling = 0;           // other calls under way
byte failed = 0;
byte deaths = 0;

inline enter(new) {
  state = new;
  successes = 0;
  probes = 0;
  left_behind = 0;
  waited = false;
  failures = (new == closed -> 0 : failures)
}

#define MAY_PROBE ((state == half_open || (state == opened && waited)) && probes < MAX_PROBES)

active [WORKERS] proctype worker() {
  bool probe = false;

idle:
end:
  probe = false;
  if
  :: d_step {
      // = outbound/breakers/breakers.lua admit
      // = domain/breaker.py admit
      state == closed -> calling++
    }
#ifdef TWOSTEP
  :: MAY_PROBE -> d_step {
#else
  :: d_step {
      // = outbound/breakers/breakers.lua probe
      MAY_PROBE ->
#endif
      if
      :: state == opened -> enter(half_open)
      :: else
      fi;
      probes++;
      probe = true;
      probing++;
      assert(probing <= MAX_PROBES)
    }
  fi;

  if
  :: d_step {
      deaths < DEATHS ->
      deaths++;
      probing = probing - probe;
      calling = calling - (1 - probe);
      left_behind = left_behind + (probe && probes > left_behind -> 1 : 0)
    }
  :: d_step {
      // = outbound/breakers/breakers.lua ok
      // = domain/breaker.py record
      probing = probing - probe;
      calling = calling - (1 - probe);
      if
      :: state == closed -> failures = 0
      :: state == half_open ->
        successes++;
        if
        :: successes >= ENOUGH -> enter(closed)
        :: else -> probes = (probes > 0 -> probes - 1 : 0)
        fi
      :: state == opened
      fi
    }
  :: d_step {
      // = outbound/breakers/breakers.lua fail
      // = domain/breaker.py record
      failed < FAILURES ->
      failed++;
      probing = probing - probe;
      calling = calling - (1 - probe);
      if
      :: state == closed ->
        failures++;
        if
        :: failures >= THRESHOLD -> enter(opened)
        :: else
        fi
      :: state == half_open -> enter(opened)
      :: state == opened
      fi
    }
  fi;
  goto idle
}

// The open time ends, and so does the right of a prober that died.
active proctype time() {
end:
  do
#ifdef LATE
  :: state == opened && !waited -> waited = true
#else
  :: state == opened && !waited && calling + probing == 0 -> waited = true
#endif
#ifndef NOEXPIRY
  :: d_step { left_behind > 0 -> left_behind--; probes = (probes > 0 -> probes - 1 : 0) }
#endif
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

// Once the provider is well, the breaker closes and stays closed.
ltl live { <> [] (state == closed) }
#endif
