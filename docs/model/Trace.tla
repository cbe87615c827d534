------------------------------- MODULE Trace -------------------------------
(***************************************************************************)
(* Is what real processes did a behaviour of Commit?                       *)
(*                                                                         *)
(* A trace holds, for each process, the steps that it told (see            *)
(* ingestor/ingest/steps.py) in its own order, and the entries that the real log  *)
(* holds in the end.  TLC leads Commit through it: an entry lands when no  *)
(* process can take its next step before.  Until then no step of one       *)
(* process hinders another's, so if there is any way through, this is one. *)
(* Steps that nobody tells (records taken into a draft, partitions gained, *)
(* a look at a slot that failed) are put in where the next one needs them. *)
(***************************************************************************)
EXTENDS Commit

CONSTANTS Traces  \* of records: events (by process), entries, procs

VARIABLES
    number,  \* which trace
    next,    \* the place of each process' next step in it
    tick     \* how many steps were made: nothing else tells the states of a trace apart

traced == <<number, next, tick>>
TraceView == <<number, tick>>

Trace == Traces[number]
Done(p) == p > Trace.procs \/ next[p] > Len(Trace.events[p])
Event(p) == Trace.events[p][next[p]]

TraceInit ==
    /\ Init
    /\ number \in 1..Len(Traces)
    /\ next = [p \in Procs |-> 1]
    /\ tick = 0

Many == 1000000
TraceWorlds == {
    [broken |-> "none", up |-> FALSE, own |-> [p \in Procs |-> {}], app |-> [p \in Procs |-> 1], last |-> Zero,
     occ |-> Many,
     faults |-> [f \in {"move", "file", "unknown", "kill", "foreign", "restore", "rewind", "cleanup", "slow", "power"}
                 |-> Many]]
}

Told(p) == next' = [next EXCEPT ![p] = @ + 1]
Untold == UNCHANGED next

Placed(p) == {tp \in Parts : procs[p].at[tp] > 0}

\* The records that have to be in the draft: for each partition up to which offset.
Lacking(p, last) == {tp \in DOMAIN last : tp \notin DOMAIN procs[p].draft \/ procs[p].draft[tp].last < last[tp]}
TakeFirst(p, last) == LET tp == CHOOSE x \in Lacking(p, last) : TRUE IN Take(p, tp, last[tp]) /\ Untold

Opened(p, e) == Newest = e.version /\ Start(p) /\ Told(p)

Asked(p, e) ==
    LET tps == DOMAIN e.txns
        strange == tps \ procs[p].own
    IN IF strange # {}
       THEN Gain(p, CHOOSE tp \in strange : TRUE) /\ Untold
       ELSE /\ Newest = e.version /\ Ask(p, tps) /\ Told(p)
            /\ \A tp \in tps : procs'[p].asked[tp] = e.txns[tp]

Entered(p, e) ==
    IF e.partition \notin procs[p].own THEN Gain(p, e.partition) /\ Untold ELSE
    /\ e.partition \in DOMAIN procs[p].asked /\ procs[p].asked[e.partition] = e.txn
    /\ Enter(p, [tp \in {e.partition} |-> e.position]) /\ Told(p)

\* Of a dropped draft only its partitions are known: one record of each will do.
Dropped(p, e) ==
    LET tps == e.partitions \cap procs[p].own
        drafted == e.again \cup (IF e.again = {} THEN {} ELSE {CHOOSE tp \in e.partitions \cap Placed(p) : TRUE})
        some == [tp \in drafted |-> procs[p].at[tp]]
    IN IF tps = {} /\ e.again = {} THEN UNCHANGED vars /\ Told(p)
       ELSE IF procs[p].draft = Empty /\ e.again # {}
       THEN TakeFirst(p, some)
       ELSE IF DOMAIN procs[p].draft # drafted THEN TakeFirst(p, [tp \in drafted \ DOMAIN procs[p].draft |-> some[tp]])
       ELSE Lose(p, tps) /\ Told(p)

Sealed(p, e) ==
    IF DOMAIN procs[p].draft # DOMAIN e.last
    THEN TakeFirst(p, e.last)
    ELSE /\ \A tp \in DOMAIN e.last : procs[p].draft[tp].exp = e.expected[tp] /\ procs[p].draft[tp].last = e.last[tp]
         /\ Seal(p) /\ Told(p)
         /\ procs'[p].batch.id = e.commit_id

Compared(p, e) ==
    /\ Newest = e.version /\ procs[p].batch.id = e.commit_id
    /\ DOMAIN e.txns = DOMAIN procs[p].batch.parts
    /\ \A tp \in DOMAIN e.txns : txns[1][tp] = e.txns[tp]
    /\ Compare(p) /\ Told(p)
    /\ procs'[p].step = IF e.moved = {} THEN "put" ELSE "fenced"

Sent(p, e) ==
    IF procs[p].step = "look" THEN LookFails(p) /\ Untold
    ELSE /\ procs[p].batch.id = e.commit_id /\ e.slot = procs[p].ver + 1
         /\ DOMAIN e.last = DOMAIN procs[p].batch.parts
         /\ \A tp \in DOMAIN e.last : procs[p].batch.parts[tp].last = e.last[tp]
         /\ Put(p) /\ Told(p)

Ours(p) == Newest > procs[p].ver /\ log[procs[p].ver + 1].id = procs[p].batch.id

Found(p, e) ==
    /\ procs[p].batch.id = e.commit_id /\ e.slot = procs[p].ver + 1
    /\ e.owner = IF Newest < e.slot THEN "nobody" ELSE IF Ours(p) THEN "ours" ELSE "another"
    /\ LookAtSlot(p) /\ Told(p)

Acknowledges(p, e) ==
    procs[p].batch.id = e.commit_id /\ e.slot = procs[p].ver + 1 /\ Ours(p) /\ ~procs[p].old /\ Settle(p) /\ Told(p)

Overlong(p) == IF procs[p].old THEN Settle(p) /\ Told(p) ELSE Age(p) /\ Untold

StartsOver(p, e) ==
    IF procs[p].step = "put" /\ ~e.landing THEN LoseReadyFile(p) /\ Untold
    ELSE IF procs[p].step = "fenced" /\ ~e.landing THEN StartOver(p) /\ Told(p)
    ELSE LoseFile(p, e.landing) /\ Told(p)

Step(p) ==
    /\ ~Done(p)
    /\ LET e == Event(p) IN
       CASE e.step = "opened" -> Opened(p, e)
         [] e.step = "asked" -> Asked(p, e)
         [] e.step = "placed" -> Entered(p, e)
         [] e.step = "dropped" -> Dropped(p, e)
         [] e.step = "sealed" -> Sealed(p, e)
         [] e.step = "compared" -> Compared(p, e)
         [] e.step = "put" -> Sent(p, e)
         [] e.step = "answered" -> procs[p].batch.id = e.commit_id /\ Ours(p) /\ Answered(p) /\ Told(p)
         [] e.step = "unanswered" -> procs[p].batch.id = e.commit_id /\ Fail(p, FALSE) /\ Told(p)
         [] e.step = "found" -> Found(p, e)
         [] e.step = "acknowledged" -> Acknowledges(p, e)
         [] e.step = "overlong" -> Overlong(p)
         [] e.step = "started_over" -> StartsOver(p, e)

\* The next entry of the real log: one of ours must be on its way, say the same, and follow the txns before it.
Landing ==
    /\ Newest < Len(Trace.entries)
    /\ LET real == Trace.entries[Newest + 1] IN
       IF real.kind = "other" THEN Others
       ELSE \E entry \in flight :
               /\ entry.id = real.id /\ entry.txn = real.txn
               /\ \A tp \in DOMAIN entry.parts :
                      /\ entry.parts[tp].exp = txns[1][tp] /\ entry.txn[tp] > txns[1][tp]
                      /\ Len(entry.parts[tp].rows) = 1 /\ entry.parts[tp].rows[1][1] > txns[1][tp]
                      /\ entry.parts[tp].rows[1][2] = entry.txn[tp]
               /\ Arrive(entry)
    /\ Untold

Ready == {p \in Procs : ~Done(p) /\ ENABLED Step(p)}

Finish ==
    /\ ~ENABLED Landing
    /\ IF (\A p \in Procs : Done(p)) /\ Newest = Len(Trace.entries)
       THEN PrintT(<<"ACCEPTED", number, tick>>)
       ELSE PrintT(<<"REJECTED", number, tick, "version", Newest,
                     [p \in {q \in Procs : ~Done(q)} |-> <<next[p], Event(p)>>]>>)
    /\ FALSE

TraceNext ==
    LET ready == Ready IN
    \/ /\ IF ready # {} THEN Step(CHOOSE p \in ready : TRUE) ELSE Landing
       /\ tick' = tick + 1
       /\ UNCHANGED number
    \/ /\ ready = {} /\ Finish /\ UNCHANGED <<vars, traced>>
=============================================================================
