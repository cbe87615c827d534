------------------------------- MODULE Commit -------------------------------
(***************************************************************************)
(* How ingestors commit to one Delta table, step by step as the code does  *)
(* it: ingestor/ingest/committer.py, table.py, lane.py and partitions.py.         *)
(*                                                                         *)
(* Offsets count from 1.  A txn of 0 means that nothing was committed, and *)
(* a position of 0 that a partition has no place.  Version 0 is the entry  *)
(* that created the table, so `log[v]` is the entry of version v.          *)
(*                                                                         *)
(* `world.broken` names one break of the code ("none": the code as it is). *)
(* Each is the twin of a mutant in tests/unit/ingest/mutants.py.           *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Procs,   \* the processes; one that ended may start again
    Parts,   \* the topic partitions
    Worlds,  \* what may happen: records, owners, app ids, number of faults
    Talk     \* TRUE: `said` holds in words what the last step did

VARIABLES
    world,   \* one of Worlds; never changes
    log,     \* the entries of the Delta log
    first,   \* the oldest entry that log clean-up has left
    synced,  \* entries up to here survive a power cut
    txns,    \* the txns of the newest version, by app id and partition
    claim,   \* the oldest foreign entry that took rows or moved txns back, and that nobody answered yet; 0: none
    noted,   \* whether the log's own memory tells of that entry
    flight,  \* requests on their way to the store, all for the next free slot
    procs,   \* what each process knows and does
    acked,   \* ghost: the batches that were acknowledged
    gone,    \* ghost: the batches whose file was removed
    wrong,   \* ghost: promises of the committer that were not kept
    left,    \* how many faults of each kind may still happen
    said     \* the last step in words

store == <<log, first, synced, txns, claim, noted>>
ghosts == <<acked, gone, wrong>>
vars == <<world, store, flight, procs, ghosts, left, said>>
View == <<world, store, flight, procs, ghosts, left>>

Empty == [x \in {} |-> 0]
Zero == [tp \in Parts |-> 0]
Newest == Len(log)
NoBatch == [id |-> <<0, 0>>, parts |-> Empty]
Max(S) == CHOOSE m \in S : \A n \in S : n <= m
Broken(mutant) == world.broken = mutant
App(p) == world.app[p]
Say(who, what) == said' = IF Talk THEN ToString(<<who, what>>) ELSE said

Fresh(n) ==
    [up |-> TRUE, n |-> n, own |-> {}, pend |-> {}, asked |-> Empty, at |-> Zero, chain |-> Zero, draft |-> Empty,
     batch |-> NoBatch, step |-> "idle", ver |-> 0, seen |-> Zero, tries |-> 0, old |-> FALSE]
Down(n) == [Fresh(n) EXCEPT !.up = FALSE]

Init ==
    /\ world \in Worlds
    /\ log = <<>> /\ first = 1 /\ synced = 0 /\ claim = 0 /\ noted = FALSE
    /\ txns = [a \in {1, 2} |-> Zero]
    /\ flight = {} /\ acked = {} /\ gone = {} /\ wrong = {}
    /\ procs = [p \in Procs |-> IF world.up THEN [Fresh(0) EXCEPT !.own = world.own[p], !.pend = world.own[p]] ELSE Down(0)]
    /\ left = world.faults
    /\ said = "start"

Spend(fault) == left[fault] > 0 /\ left' = [left EXCEPT ![fault] = @ - 1]

---------------------------------------------------------------------------
(* The log. *)

Entry(kind, id, app, parts, txn, of) ==
    [kind |-> kind, id |-> id, app |-> app, parts |-> parts, txn |-> txn, of |-> of]
Foreign(kind, of) == Entry(kind, <<0, 0>>, 1, Empty, Empty, of)

\* The slot after the newest version gets an entry.  Every other request for it is refused from then on.
Append1(entry) ==
    /\ log' = Append(log, entry)
    /\ txns' = [txns EXCEPT ![entry.app] = [tp \in Parts |-> IF tp \in DOMAIN entry.txn THEN entry.txn[tp] ELSE @[tp]]]
    /\ flight' = {}

Ids == {log[v].id : v \in {w \in 1..Newest : log[w].kind = "batch"}}

\* The txns of a log, from its entries alone.
TxnIn(entries, app, tp, v) ==
    LET said_so == {w \in 1..v : entries[w].app = app /\ tp \in DOMAIN entries[w].txn}
    IN IF said_so = {} THEN 0 ELSE entries[Max(said_so)].txn[tp]
TxnsIn(entries) == [a \in {1, 2} |-> [tp \in Parts |-> TxnIn(entries, a, tp, Len(entries))]]

\* The entries whose rows are in the table at a version.
RECURSIVE Live(_)
Live(v) ==
    IF v = 0 THEN {}
    ELSE IF log[v].kind = "batch" THEN Live(v - 1) \cup {v}
    ELSE IF log[v].kind = "restore" THEN Live(log[v].of)
    ELSE Live(v - 1)

\* Where an offset stands in the table: entry, and place in its file.
Copies(tp, o) ==
    UNION {{<<v, i>> : i \in {j \in DOMAIN log[v].parts[tp].rows :
                                log[v].parts[tp].rows[j][1] <= o /\ o <= log[v].parts[tp].rows[j][2]}} :
           v \in {w \in Live(Newest) : tp \in DOMAIN log[w].parts}}

---------------------------------------------------------------------------
(* Partitions come and go, and get their places (partitions.py, placement.py, lane.py). *)

\* Partitions of another app id: rows of theirs are in the table, and not by our txns.
Strangers(p) == {tp \in Parts : \E a \in {1, 2} \ {App(p)} : txns[a][tp] > 0}

\* A foreign entry that nobody answered, as a process sees it that looks at the newest version.
Alarmed(p) ==
    IF Broken("RewindNotNoticed") THEN FALSE ELSE claim > procs[p].ver \/ noted

\* The same for one that opens the table: it reads the entries that are left, too.
AlarmedAtOpen ==
    CASE Broken("RewindNotNoticed") -> FALSE
      [] Broken("OpenLooksAtNoEntry") -> noted
      [] OTHER -> noted \/ (claim > 0 /\ claim >= first)

Start(p) ==
    /\ ~procs[p].up
    /\ procs' = [procs EXCEPT ![p] = [Fresh(@.n) EXCEPT
           !.ver = Newest, !.seen = txns[App(p)], !.step = IF AlarmedAtOpen THEN "refuse" ELSE "idle"]]
    /\ Say(p, "opens the table")
    /\ UNCHANGED <<world, store, flight, ghosts, left>>

\* It will end.  Its handle stays where it was, so a commit that begins before that is refused, too.
Alarm(p) ==
    /\ procs' = [procs EXCEPT ![p].step = "refuse", ![p].ver = IF Broken("AlarmedOnce") THEN Newest ELSE @]
    /\ Say(p, "finds that rows were taken away")

\* What an ended process leaves behind: nothing but its requests.
End(p) == procs' = [procs EXCEPT ![p] = Down(@.n)]

Orphan(tp) == ~\E p \in Procs : procs[p].up /\ tp \in procs[p].own

\* The group gives a partition to a process; the one that had it may not know (then it costs a fault).
Gain(p, tp) ==
    /\ procs[p].up /\ tp \notin procs[p].own
    /\ IF Orphan(tp) THEN UNCHANGED left ELSE Spend("move")
    /\ procs' = [procs EXCEPT ![p].own = @ \cup {tp}, ![p].pend = @ \cup {tp}]
    /\ Say(p, <<"is given partition", tp>>)
    /\ UNCHANGED <<world, store, flight, ghosts>>

\* Partitions are taken away: an open draft with rows of theirs is dropped whole, and its others are read again.
\* What is landing already goes on.
Lose(p, tps) ==
    LET me == procs[p]
        dropped == DOMAIN me.draft \cap tps # {}
        again == IF dropped /\ ~Broken("KeptPartitionsNotReadAgain") THEN DOMAIN me.draft \ tps ELSE {}
        forgotten == IF Broken("RevokedPositionsKept") THEN again ELSE tps \cup again
    IN
    /\ me.up /\ tps # {} /\ tps \subseteq me.own
    /\ Spend("move")
    /\ procs' = [procs EXCEPT
           ![p].own = @ \ tps,
           ![p].pend = (@ \ tps) \cup again,
           ![p].at = [tp \in Parts |-> IF tp \in forgotten THEN 0 ELSE @[tp]],
           ![p].chain = [tp \in Parts |-> IF tp \in forgotten THEN 0 ELSE @[tp]],
           ![p].draft = IF dropped THEN Empty ELSE @]
    /\ Say(p, <<"loses partitions", tps>>)
    /\ UNCHANGED <<world, store, flight, ghosts>>

\* The storage thread is free: no commit is under way.
Free(p) == procs[p].up /\ procs[p].step \in {"idle", "sealed", "fenced"}

\* The places of partitions are asked of the table.
Ask(p, tps) ==
    LET me == procs[p]
        looks == ~Broken("NoLook")
        found == IF looks THEN txns[App(p)] ELSE me.seen
    IN
    /\ Free(p) /\ tps \subseteq me.pend
    /\ IF looks /\ Alarmed(p)
       THEN Alarm(p)
       ELSE IF Strangers(p) \cap tps # {}
       THEN End(p) /\ Say(p, "finds the txns of another app id, and ends")
       ELSE /\ procs' = [procs EXCEPT
                   ![p].ver = IF looks THEN Newest ELSE @,
                   ![p].seen = found,
                   ![p].asked = [tp \in tps |-> found[tp]]]
            /\ Say(p, <<"looks where to go on; txns", found>>)
    /\ UNCHANGED <<world, store, flight, ghosts, left>>

\* The answer is taken: reading begins at `where`, right after the txn or, if Kafka has lost records, behind it.
Enter(p, where) ==
    LET me == procs[p]
        tps == DOMAIN where
    IN
    /\ me.up /\ tps # {} /\ tps \subseteq DOMAIN me.asked \cap me.pend
    /\ \A tp \in tps : where[tp] > me.asked[tp] \/ Broken("PositionIsTxn")
    /\ procs' = [procs EXCEPT
           ![p].at = [tp \in Parts |-> IF tp \in tps THEN where[tp] ELSE @[tp]],
           ![p].chain = [tp \in Parts |-> IF tp \in tps THEN me.asked[tp] ELSE @[tp]],
           ![p].pend = @ \ tps,
           ![p].asked = [tp \in DOMAIN @ \ tps |-> @[tp]]]
    /\ Say(p, <<"reads on from", where>>)
    /\ UNCHANGED <<world, store, flight, ghosts, left>>

---------------------------------------------------------------------------
(* From records to a file (lane.py, stager.py). *)

\* Records up to one are taken into the open draft.
Take(p, tp, to) ==
    LET me == procs[p]
        span == <<me.at[tp], to>>
        before == me.draft[tp].rows
        rows == IF before[Len(before)][2] + 1 = span[1]
                THEN [before EXCEPT ![Len(before)][2] = to] ELSE Append(before, span)
        taken == IF tp \in DOMAIN me.draft
                 THEN [me.draft[tp] EXCEPT !.rows = rows, !.last = to]
                 ELSE [exp |-> me.chain[tp], rows |-> <<span>>, last |-> to]
    IN
    /\ me.up /\ me.at[tp] > 0 /\ me.at[tp] <= to
    /\ procs' = [procs EXCEPT
           ![p].draft = [x \in DOMAIN @ \cup {tp} |-> IF x = tp THEN taken ELSE @[x]],
           ![p].at[tp] = IF Broken("PositionIsLastTaken") THEN to ELSE to + 1]
    /\ Say(p, <<"takes records of partition", tp, "offsets", span>>)
    /\ UNCHANGED <<world, store, flight, ghosts, left>>

\* The draft is closed; what comes next builds on the txns that it will have moved.
Seal(p) ==
    LET me == procs[p] IN
    /\ me.up /\ me.draft # Empty /\ me.batch = NoBatch
    /\ procs' = [procs EXCEPT
           ![p].n = @ + 1,
           ![p].batch = [id |-> <<p, me.n + 1>>, parts |-> me.draft],
           ![p].chain = [tp \in Parts |-> IF tp \in DOMAIN me.draft THEN me.draft[tp].last ELSE @[tp]],
           ![p].draft = Empty,
           ![p].step = "sealed",
           ![p].tries = 0]
    /\ Say(p, <<"closes its file, which is built on txns", [tp \in DOMAIN me.draft |-> me.draft[tp].exp]>>)
    /\ UNCHANGED <<world, store, flight, ghosts, left>>

\* Everything in hand is dropped, and each partition gets its place anew.
StartedOver(me, kept) ==
    LET placed == {tp \in Parts : me.at[tp] > 0}
        cleared == [tp \in Parts |-> IF Broken("PositionsKeptAfterFence") THEN me.at[tp] ELSE 0]
    IN [me EXCEPT
           !.draft = IF Broken("DraftKeptAfterFence") THEN @ ELSE Empty,
           !.at = cleared,
           !.chain = IF Broken("PositionsKeptAfterFence") THEN @ ELSE Zero,
           !.pend = IF Broken("FencedNotPlacedAgain") THEN @ ELSE @ \cup (placed \cap me.own),
           !.batch = IF kept THEN @ ELSE NoBatch,
           !.step = IF kept THEN @ ELSE "idle"]

\* The poll thread hears that the batch was fenced.
StartOver(p) ==
    /\ procs[p].up /\ procs[p].step = "fenced"
    /\ procs' = [procs EXCEPT ![p] = StartedOver(@, FALSE)]
    /\ gone' = IF Broken("FencedFileRemoved") THEN gone \cup {procs[p].batch.id} ELSE gone
    /\ Say(p, "drops all that it has in hand")
    /\ UNCHANGED <<world, store, flight, acked, wrong, left>>

\* A file can't be written: the open draft's, or that of the batch whose commit has not begun.
LoseFile(p, landing) ==
    /\ procs[p].up
    /\ landing => procs[p].step # "idle"
    /\ ~landing => procs[p].step \in {"idle", "sealed", "compare"}
    /\ Spend("file")
    /\ procs' = [procs EXCEPT ![p] = StartedOver(@, landing)]
    /\ Say(p, "can't write a file, and drops all that it has in hand")
    /\ UNCHANGED <<world, store, flight, ghosts>>

---------------------------------------------------------------------------
(* The commit (committer.py). *)

\* Right before it is put, another file stands where the batch's was written: the batch counts as fenced.
LoseReadyFile(p) ==
    /\ procs[p].up /\ procs[p].step = "put"
    /\ Spend("file")
    /\ IF Broken("SwappedFileCommitted")
       THEN gone' = gone \cup {procs[p].batch.id} /\ UNCHANGED procs
       ELSE procs' = [procs EXCEPT ![p].step = "fenced"] /\ UNCHANGED gone
    /\ Say(p, "has its file moved away")
    /\ UNCHANGED <<world, store, flight, acked, wrong>>

Moved(me, seen) == {tp \in DOMAIN me.batch.parts : seen[tp] # me.batch.parts[tp].exp}

Fence(p, told) ==
    /\ procs' = [procs EXCEPT ![p].step = "fenced", ![p].ver = told.ver, ![p].seen = told.seen]
    /\ Say(p, <<"finds its txns moved, and is fenced:", told.seen>>)

\* Look at the newest version, and compare its txns with those that the rows were built on.
Compare(p) ==
    LET me == procs[p]
        looks == ~Broken("NoLook")
        ver == IF looks THEN Newest ELSE me.ver
        seen == IF looks THEN txns[App(p)] ELSE me.seen
        moved == IF Broken("NoFence") \/ (Broken("ComparedOnce") /\ me.tries > 0) THEN {} ELSE Moved(me, seen)
        strangers == IF Broken("AppIdsNotCompared") THEN {} ELSE Strangers(p) \cap DOMAIN me.batch.parts
        \* What a fence promises: somebody else moved a txn, and nothing of the batch is in the table.
        breaches == IF moved = {} THEN {}
                    ELSE (IF Moved(me, txns[App(p)]) = {} THEN {"fenced though no txn has moved"} ELSE {})
                         \cup (IF me.batch.id \in Ids THEN {"fenced though its rows have landed"} ELSE {})
    IN
    /\ me.up /\ me.step \in {"sealed", "compare"}
    /\ IF looks /\ Alarmed(p)
       THEN Alarm(p)
       ELSE IF strangers # {}
       THEN End(p) /\ Say(p, "finds the txns of another app id, and ends")
       ELSE IF moved # {}
       THEN Fence(p, [ver |-> ver, seen |-> seen])
       ELSE /\ procs' = [procs EXCEPT ![p].step = "put", ![p].ver = ver, ![p].seen = seen, ![p].old = FALSE]
            /\ Say(p, <<"compares at version", ver, "and finds the txns as expected:", seen>>)
    /\ wrong' = wrong \cup (IF (looks /\ Alarmed(p)) \/ strangers # {} THEN {} ELSE breaches)
    /\ UNCHANGED <<world, store, flight, acked, gone, left>>

\* Only broken code looks again between comparing and putting.
LookAgain(p) ==
    /\ procs[p].up
    /\ \/ Broken("FreshHandle") /\ procs[p].step = "put"
       \/ procs[p].step = "renew"
    /\ procs[p].ver # Newest \/ procs[p].step = "renew"
    /\ procs' = [procs EXCEPT ![p].ver = Newest, ![p].seen = txns[App(p)], ![p].step = "put"]
    /\ Say(p, <<"looks again without comparing: version", Newest>>)
    /\ UNCHANGED <<world, store, flight, ghosts, left>>

EntryOf(p) ==
    LET batch == procs[p].batch
        txn == IF Broken("NoTxn") THEN Empty ELSE [tp \in DOMAIN batch.parts |-> batch.parts[tp].last]
    IN Entry("batch", batch.id, App(p), batch.parts, txn, 0)

\* delta-rs on its own takes a later slot if no entry in between has a txn of the same app ids.
Rebases(p) == Broken("StaleHandleRebased")
              /\ \A v \in procs[p].ver + 1..Newest : DOMAIN log[v].txn \cap DOMAIN procs[p].batch.parts = {}

Slot(p) == IF Rebases(p) THEN Newest + 1 ELSE procs[p].ver + 1

\* A request is sent: put this entry at the slot after the version that was compared, if there is none yet.
Put(p) ==
    LET slot == Slot(p) IN
    /\ procs[p].up /\ procs[p].step = "put"
    /\ IF Broken("EntryReplaced") /\ slot <= Newest
       THEN /\ log' = [log EXCEPT ![slot] = EntryOf(p)]
            /\ txns' = TxnsIn(log')
            /\ UNCHANGED flight
       ELSE /\ flight' = IF slot = Newest + 1 THEN flight \cup {EntryOf(p)} ELSE flight
            /\ UNCHANGED <<log, txns>>
    /\ procs' = [procs EXCEPT ![p].step = "asking"]
    /\ Say(p, <<"puts its entry, slot", slot>>)
    /\ UNCHANGED <<world, first, synced, claim, noted, ghosts, left>>

\* A request reaches the store, whether or not somebody still waits for the answer.
Arrive(entry) ==
    /\ entry \in flight
    /\ Append1(entry)
    /\ Say("the store", <<"takes the entry of process", entry.id[1], "as version", Newest + 1>>)
    /\ UNCHANGED <<world, first, synced, claim, noted, procs, ghosts, left>>

\* The answer says that the entry is there.  A slot that was cleaned away is free again: the store takes the entry,
\* but no reader will ever look at it.
Answered(p) ==
    /\ procs[p].up /\ procs[p].step = "asking"
    /\ procs[p].batch.id \in Ids \/ procs[p].ver + 1 < first
    /\ procs' = [procs EXCEPT ![p].step = "landed"]
    /\ Say(p, "is told that its entry is there")
    /\ UNCHANGED <<world, store, flight, ghosts, left>>

\* The answer says that the slot is taken, by whomever.
Rejected(p) ==
    /\ procs[p].up /\ procs[p].step = "asking"
    /\ procs[p].ver + 1 \in first..Newest /\ ~Rebases(p)
    /\ procs' = [procs EXCEPT ![p].step = "look"]
    /\ Say(p, "is told that the slot is taken")
    /\ UNCHANGED <<world, store, flight, ghosts, left>>

\* No answer comes, or one that says nothing.  The request may be lost, or arrive at any later time.
Fail(p, lost) ==
    /\ procs[p].up /\ procs[p].step = "asking"
    /\ Spend("unknown")
    /\ flight' = IF lost THEN {entry \in flight : entry.id # procs[p].batch.id} ELSE flight
    /\ procs' = [procs EXCEPT ![p].step = "look"]
    /\ Say(p, IF lost THEN "gets an error; its request is lost" ELSE "gets an error; its request may still arrive")
    /\ UNCHANGED <<world, store, ghosts>>

\* Something else has the slot: try the next one, unless that was the last try.
Conflict(p) ==
    LET me == procs[p]
        lost == me.tries + 1
        tries_max == IF Broken("OneRetryTooFew") THEN world.occ ELSE world.occ + 1
    IN
    /\ IF lost >= tries_max
       THEN End(p) /\ Say(p, <<"gives up after", lost, "lost slots (exit 5)">>)
       ELSE /\ procs' = [procs EXCEPT ![p].tries = lost, ![p].step = "compare"]
            /\ Say(p, "finds another's entry in its slot")
    /\ wrong' = IF lost >= tries_max /\ lost < world.occ + 1 THEN wrong \cup {"gave up too early"} ELSE wrong

\* After any error: who wrote the entry in that very slot?
LookAtSlot(p) ==
    LET me == procs[p]
        slot == me.ver + 1
        owner == IF slot > Newest THEN "nobody" ELSE IF log[slot].id = me.batch.id THEN "ours" ELSE "another"
        taken_for == CASE owner = "another" /\ Broken("AnothersTakenForOurs") -> "ours"
                       [] owner = "ours" /\ Broken("OursTakenForAnothers") -> "another"
                       [] Broken("ErrorMeansNotLanded") -> "nobody"
                       [] OTHER -> owner
    IN
    /\ me.up /\ me.step = "look"
    /\ gone' = IF Broken("FileDeletedAfterError") THEN gone \cup {me.batch.id} ELSE gone
    /\ CASE slot < first ->
              End(p) /\ UNCHANGED wrong /\ Say(p, "finds the log cut off behind it, and ends (exit 4)")
         [] slot >= first /\ taken_for = "nobody" ->
              /\ procs' = [procs EXCEPT ![p].step = IF Broken("NewSlotWhileOldIsEmpty") THEN "renew" ELSE "put"]
              /\ UNCHANGED wrong /\ Say(p, "finds its slot empty")
         [] slot >= first /\ taken_for = "ours" ->
              /\ procs' = [procs EXCEPT ![p].step = "landed"]
              /\ UNCHANGED wrong /\ Say(p, "takes the entry in its slot for its own")
         [] OTHER -> Conflict(p)
    /\ UNCHANGED <<world, store, flight, acked, left>>

\* The look fails too: the same slot is tried again.
LookFails(p) ==
    /\ procs[p].up /\ procs[p].step = "look"
    /\ Spend("unknown")
    /\ procs' = [procs EXCEPT ![p].step = "put"]
    /\ Say(p, "can't look at its slot")
    /\ UNCHANGED <<world, store, flight, ghosts>>

\* The entry is made durable, and the batch acknowledged.  A commit that took too long is not trusted.
Settle(p) ==
    LET me == procs[p] IN
    /\ me.up /\ me.step = "landed"
    /\ IF me.old /\ ~Broken("OverlongCommitTrusted")
       THEN /\ procs' = [procs EXCEPT ![p].step = "fenced"]
            /\ Say(p, "has taken too long, and looks at the ledger anew")
            /\ UNCHANGED <<synced, acked>>
       ELSE /\ procs' = [procs EXCEPT ![p].step = "idle", ![p].batch = NoBatch]
            /\ acked' = acked \cup {me.batch.id}
            /\ synced' = IF Broken("AcknowledgedBeforeDurable") THEN synced ELSE Max({synced, me.ver + 1})
            /\ Say(p, "acknowledges")
    /\ UNCHANGED <<world, log, first, txns, claim, noted, flight, gone, wrong, left>>

\* Before a process ends because rows were taken away, it writes that into the log, where every other one reads it.
Refuse(p) ==
    LET writes == ~noted /\ claim > 0 /\ ~Broken("RefusalNotWritten")
    IN
    /\ procs[p].up /\ procs[p].step = "refuse"
    /\ End(p)
    /\ noted' = (noted \/ writes)
    /\ IF writes THEN Append1(Foreign("refused", claim)) ELSE UNCHANGED <<log, txns, flight>>
    /\ Say(p, IF writes THEN "notes in the log that rows are missing, and ends" ELSE "ends (exit 4)")
    /\ UNCHANGED <<world, first, synced, claim, ghosts, left>>

---------------------------------------------------------------------------
(* What others do, and what goes wrong. *)

Kill(p) ==
    /\ procs[p].up /\ Spend("kill") /\ End(p)
    /\ Say(p, "is killed")
    /\ UNCHANGED <<world, store, flight, ghosts>>

\* Another program commits: rows or txns of its own, or a compaction, which rewrites files and changes no row.
Others ==
    /\ Spend("foreign") /\ Append1(Foreign("other", 0))
    /\ Say("another program", "commits or compacts")
    /\ UNCHANGED <<world, first, synced, claim, noted, procs, ghosts>>

\* A person restores an older version: rows go, txns stay.
Restore(to) ==
    /\ Spend("restore") /\ to \in 0..Newest - 1 /\ Live(to) # Live(Newest)
    /\ Append1(Foreign("restore", to))
    /\ claim' = IF claim = 0 THEN Newest + 1 ELSE claim
    /\ Say("a person", <<"restores version", to>>)
    /\ UNCHANGED <<world, first, synced, noted, procs, ghosts>>

\* A foreign entry moves a txn back: the rows stay.
Rewind(tp) ==
    /\ Spend("rewind") /\ txns[1][tp] > 0
    /\ Append1(Entry("rewind", <<0, 0>>, 1, Empty, [x \in {tp} |-> txns[1][tp] - 1], 0))
    /\ claim' = IF claim = 0 THEN Newest + 1 ELSE claim
    /\ Say("a foreign hand", <<"moves a txn back, partition", tp>>)
    /\ UNCHANGED <<world, first, synced, noted, procs, ghosts>>

\* A person answers: from here on the txns are what the rows say.  Before that the person has stopped the ingestors,
\* unless one is no member of the group any more and still runs (that costs a fault).
Answer(stopped) ==
    LET held(tp) == {o \in 1..world.last[tp] : \A i \in 1..o : Copies(tp, i) # {}} \cup {0}
    IN
    /\ claim > 0
    /\ IF stopped = Procs THEN UNCHANGED left ELSE Spend("move")
    /\ Append1(Entry("answer", <<0, 0>>, 1, Empty, [tp \in Parts |-> Max(held(tp))], 0))
    /\ claim' = 0 /\ noted' = FALSE
    /\ procs' = [p \in Procs |-> IF p \in stopped THEN Down(procs[p].n) ELSE procs[p]]
    /\ Say("a person", "stops the ingestors, and sets the offsets to what the table holds")
    /\ UNCHANGED <<world, first, synced, ghosts>>

\* Old entries are removed: those older than the log's retention, which is far more than a commit may take.
\* What is assumed: a foreign entry that takes rows away is seen by an ingestor before it is cleaned up.
CleanUp(k) ==
    /\ Spend("cleanup") /\ k \in first + 1..Newest
    /\ claim > 0 /\ claim < k => noted \/ Broken("RefusalNotWritten")
    /\ first' = k
    /\ synced' = Newest
    /\ procs' = [p \in Procs |-> [procs[p] EXCEPT !.old = @ \/ procs[p].ver + 1 < k]]
    /\ Say("log clean-up", <<"removes the entries before", k>>)
    /\ UNCHANGED <<world, log, txns, claim, noted, flight, ghosts>>

\* A process stands still for longer than a commit may take.
Age(p) ==
    /\ procs[p].up /\ procs[p].step \in {"put", "asking", "look", "landed"} /\ ~procs[p].old
    /\ Spend("slow")
    /\ procs' = [procs EXCEPT ![p].old = TRUE]
    /\ Say(p, "stands still for a long time")
    /\ UNCHANGED <<world, store, flight, ghosts>>

\* The machine loses power: everything that was not synced may be gone.
PowerCut(k) ==
    /\ Spend("power") /\ k \in synced..Newest
    /\ log' = SubSeq(log, 1, k)
    /\ txns' = TxnsIn(log')
    /\ flight' = {}
    /\ procs' = [p \in Procs |-> Down(procs[p].n)]
    /\ Say("power cut", <<"version", k, "is left">>)
    /\ UNCHANGED <<world, first, synced, claim, noted, ghosts>>

---------------------------------------------------------------------------

\* The partitions that have any records.
Read == {tp \in Parts : world.last[tp] > 0}

Where(p) ==
    [tp \in DOMAIN procs[p].asked \cap procs[p].pend |->
        IF Broken("PositionIsTxn") /\ procs[p].asked[tp] > 0 THEN procs[p].asked[tp] ELSE procs[p].asked[tp] + 1]

\* What a process does by itself.
Do(p) ==
    \/ Start(p)
    \/ \E tp \in Read : Orphan(tp) /\ Gain(p, tp)
    \/ procs[p].pend # {} /\ DOMAIN procs[p].asked \cap procs[p].pend = {} /\ Ask(p, procs[p].pend)
    \/ Enter(p, Where(p))
    \/ \E tp \in Parts : procs[p].at[tp] <= world.last[tp] /\ Take(p, tp, procs[p].at[tp])
    \/ Seal(p) \/ StartOver(p)
    \/ Compare(p) \/ LookAgain(p) \/ Put(p) \/ Answered(p) \/ Rejected(p) \/ LookAtSlot(p) \/ Settle(p) \/ Refuse(p)

\* What happens to it.
Suffer(p) ==
    \/ \E tp \in Read : ~Orphan(tp) /\ Gain(p, tp)
    \/ \E tps \in {procs[p].own} \cup {{tp} : tp \in procs[p].own} : Lose(p, tps)
    \/ \E landing \in BOOLEAN : LoseFile(p, landing)
    \/ \E lost \in BOOLEAN : Fail(p, lost)
    \/ LoseReadyFile(p) \/ LookFails(p) \/ Kill(p) \/ Age(p)

Arrivals == \E entry \in flight : Arrive(entry)

World ==
    \/ Arrivals \/ Others \/ \E stopped \in SUBSET Procs : Answer(stopped)
    \/ \E v \in 0..Newest : Restore(v) \/ CleanUp(v) \/ PowerCut(v)
    \/ \E tp \in Parts : Rewind(tp)

Next == (\E p \in Procs : Do(p) \/ Suffer(p)) \/ World

\* Everybody goes on, requests arrive, and a person answers: nothing else is needed for progress.
Fairness == (\A p \in Procs : WF_vars(Do(p))) /\ WF_vars(Arrivals) /\ WF_vars(Answer(Procs))

Spec == Init /\ [][Next]_vars /\ Fairness

---------------------------------------------------------------------------
(* What must hold. *)

Top(tp) == Max({txns[1][tp], txns[2][tp]})

\* I1: no offset is in the table twice.
Once == \A tp \in Parts : \A o \in 1..world.last[tp] : Cardinality(Copies(tp, o)) <= 1

\* I2: every record up to the txn is there, unless a person still has to answer for it.
Complete == claim = 0 => \A tp \in Parts : \A o \in 1..Top(tp) : Copies(tp, o) # {}

\* I3: no row lies beyond its txn.
NotBeyond == claim = 0 => \A tp \in Parts : \A o \in Top(tp) + 1..world.last[tp] : Copies(tp, o) = {}

\* I5: the rows of a commit lie right behind the txn before it and end with its own, which rises.
Follows(v) ==
    LET entry == log[v] IN
    \A tp \in DOMAIN entry.parts :
        LET before == TxnIn(log, entry.app, tp, v - 1) IN
        /\ tp \in DOMAIN entry.txn /\ entry.txn[tp] > before
        /\ entry.parts[tp].rows = <<<<before + 1, entry.txn[tp]>>>>
Chained == \A v \in 1..Newest : Follows(v)

\* I10: every file that the table names is there, and none was added twice.
Files ==
    /\ \A v \in 1..Newest : log[v].id \notin gone
    /\ \A v, w \in 1..Newest : v # w /\ log[v].kind = "batch" => log[v].id # log[w].id

\* What was acknowledged is in the log.
Acknowledged == acked \subseteq Ids

\* The committer says what is true (see `wrong`).
Truthful == wrong = {}

\* No rows land on a table that a person has to look at first.
Guarded ==
    \A v \in 1..Newest : log[v].kind = "batch" =>
        \A r \in 1..v - 1 : log[r].kind \in {"restore", "rewind"} => \E a \in r + 1..v - 1 : log[a].kind = "answer"

\* In the end everything that was produced is in the table.
AllLanded == claim = 0 /\ \A tp \in Parts : Top(tp) = world.last[tp]
Progress == <>[]AllLanded
=============================================================================
