// A queue of Redis lists: whatever dies or oversleeps, each message is in exactly one place and none runs twice at once.
//
// Steps that stand for a script cite it (`= file name`, below src/carillon); the others are the world: a process dies,
// a lock ends before its holder does. A cited script is one step because Redis runs nothing beside it; the real ones
// do many of these steps at once, which leaves fewer orders than are tried here.
//
// Shipped rule: every move is one script that checks the lock's token. Known-bad rules: NAIVE (move, then lock, and
// sweep what has no lock), MARK (the same, with a sweeper that looks twice), BLINDACK (acknowledge without the token),
// TWOSTEP (a retry removes, then adds), PUMP2 (the pump removes, then adds), NOLOCK (claim whatever is locked),
// NOSWEEP (nobody sweeps).

#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef CRASHES
#define CRASHES 3
#endif
#ifndef LAPSES
#define LAPSES 3
#endif
#ifndef TWINS
#define TWINS 2             // messages of equal bytes, and so of one id and one lock
#endif
#define PUMPS 2
#define RETRIES 3
#define DEAD 99
#define ME (_pid + 1)

#if defined(NAIVE) || defined(MARK)
#define TWO_STEP_CLAIM
#endif
#if defined(TWO_STEP_CLAIM) || defined(BLINDACK)
#define UNCHECKED 1         // nobody asks LREM whether there was anything to remove
#else
#define UNCHECKED 0
#endif

byte main = TWINS;          // how many copies lie where
byte processing = 0;
byte delayed = 0;
byte failed = 0;
byte acked = 0;
byte in_hand = 0;           // taken from one place and not yet put into another
byte lock = 0;              // 0 is absent, DEAD the token of one that died, else its holder
byte running = 0;
byte retries = 0;
byte crashes = 0;
byte lapses = 0;
bool released = false;
bool requeued = false;
bool overslept = false;     // a lock ended while its holder lived: then, and only then, two may run

#define PLACES (main + processing + delayed + failed + acked + in_hand)

#ifdef NOLOCK
#define MAY_CLAIM (main > 0)
#else
#define MAY_CLAIM (main > 0 && lock == 0)
#endif

#ifdef BLINDACK
#define MAY_ACK true
#else
#define MAY_ACK (lock == ME || lock == 0)
#endif

// = ledger/redis/lists_rules.lua leave
// What was there to leave has left; the lock goes with it if it is ours.
inline leave(place) {
  if
  :: processing > 0 -> processing--; place++
  :: else -> place = place + UNCHECKED
  fi;
  lock = (lock == ME -> 0 : lock)
}

#define DIES(ran, carried) \
  d_step { \
    crashes < CRASHES -> \
    crashes++; \
    running = running - ran; \
    in_hand = in_hand - carried; \
    lock = (lock == ME -> DEAD : lock) \
  } \
  goto idle

active [WORKERS] proctype worker() {
idle:
end:
  if
#ifdef TWO_STEP_CLAIM
  :: d_step { main > 0 -> main--; processing++ }
#else
  :: d_step {
      // A busy lock leaves the message in the main list.
      // = ledger/redis/lists_claim.lua
      MAY_CLAIM ->
      main--;
      processing++;
      lock = ME
    }
#endif
  fi;

#ifdef TWO_STEP_CLAIM
  if
  :: DIES(0, 0)
  :: d_step { lock == 0 -> lock = ME }
  :: d_step {
      lock != 0 ->
      processing = (processing > 0 -> processing - 1 : 0);
      main++
    }
    goto idle
  fi;
#endif

  d_step { assert(running == 0 || overslept); running++ }

  // = ledger/redis/lists_extend.lua
  // Renewal changes nothing here: it is why a living holder's lock ends only LAPSES times.
  if
  :: DIES(1, 0)
  :: d_step {
      // = ledger/redis/lists_settle.lua ack
      running--;
      if
      :: MAY_ACK -> leave(acked)
      :: else
      fi
    }
    goto idle
  :: d_step {
      // = ledger/redis/lists_settle.lua
      // = ledger/redis/lists_rules.lua release
      !released ->
      released = true;
      running--;
      if
      :: lock == ME -> leave(main)
      :: else
      fi
    }
    goto idle
#ifdef TWOSTEP
  :: d_step { lock == ME && retries < RETRIES -> retries++; running--; leave(in_hand) }
    if
    :: DIES(0, 1)
    :: d_step { in_hand--; delayed++ } goto idle
    fi
#else
  :: d_step {
      // = ledger/redis/lists_settle.lua
      // = ledger/redis/lists_rules.lua retry
      retries < RETRIES ->
      running--;
      if
      :: lock == ME -> retries++; leave(delayed)
      :: else
      fi
    }
    goto idle
#endif
  :: d_step {
      // = ledger/redis/lists_settle.lua
      // = ledger/redis/lists_rules.lua fail
      retries >= RETRIES ->
      running--;
      if
      :: lock == ME -> leave(failed)
      :: else
      fi
    }
    goto idle
  fi
}

active [PUMPS] proctype pump() {
end:
  do
#ifdef PUMP2
  :: d_step { delayed > 0 -> delayed--; in_hand++ }
    if
    :: d_step { crashes < CRASHES -> crashes++; in_hand-- }
    :: d_step { in_hand--; main++ }
    fi
#else
  :: d_step {
      // = ledger/redis/lists_pump.lua
      delayed > 0 ->
      delayed--;
      main++
    }
#endif
  od
}

active proctype sweeper() {
end:
  do
#ifndef NOSWEEP
  :: processing > 0 && lock == 0 ->    // = ledger/redis/lists_look.lua
#ifdef MARK
end_looked:
    processing > 0 && lock == 0 ->
#endif
    d_step {
      // = ledger/redis/lists_sweep.lua
      if
      :: processing > 0 && lock == 0 && retries < RETRIES -> retries++; processing--; delayed++
      :: processing > 0 && lock == 0 && retries >= RETRIES -> processing--; failed++
      :: else
      fi
    }
#else
  :: false
#endif
  od
}

active proctype operator() {
end:
  do
  :: d_step {
      // = ledger/redis/lists_requeue.lua
      failed > 0 && !requeued ->
      requeued = true;
      failed--;
      main++
    }
  od
}

// A lock ends after its holder died, or while its holder is paused for longer than it lasts.
active proctype time() {
end:
  do
  :: lock == DEAD -> lock = 0
  :: d_step { lock != 0 && lock != DEAD && lapses < LAPSES -> lapses++; overslept = true; lock = 0 }
  od
}

active proctype auditor() {
end:
  do
  :: d_step { PLACES < TWINS -> assert(PLACES >= TWINS) }    // nothing is lost
  :: d_step { PLACES > TWINS -> assert(PLACES <= TWINS) }    // nothing is copied
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

// Each message ends, whatever happened, and stays ended.
ltl live { <> [] (acked + failed == TWINS) }
#endif
