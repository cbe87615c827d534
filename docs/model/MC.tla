--------------------------------- MODULE MC ---------------------------------
(***************************************************************************)
(* What TLC looks at: worlds of bounded size in which the code is as it is *)
(* ("none"), and for each break one that is just large enough to show it.  *)
(* All of them go into one run.  Once a break is found out, its world is   *)
(* not followed any further.                                               *)
(***************************************************************************)
EXTENDS Commit

CONSTANTS Size  \* which worlds: "quick" | "small" | "large" | "mutants" | "live", or a break that only time shows

FAULTS == {"move", "file", "unknown", "kill", "foreign", "restore", "rewind", "cleanup", "slow", "power"}
None == [f \in FAULTS |-> 0]
Once1(kinds) == [f \in FAULTS |-> IF f \in kinds THEN 1 ELSE 0]

\* Both processes believe to own partition 1: one of them is a zombie.
Both == [p \in Procs |-> {1}]
OnlyA == [p \in Procs |-> IF p = 1 THEN {1} ELSE {}]
AllOfA == [p \in Procs |-> IF p = 1 THEN {1, 2} ELSE {}]
SameApp == [p \in Procs |-> 1]
TwoApps == [p \in Procs |-> IF p = 1 THEN 1 ELSE 2]

World1(broken, last, own, faults) ==
    [broken |-> broken, up |-> TRUE, last |-> last, own |-> own, app |-> SameApp, occ |-> 1, faults |-> faults]

Breaks == {
    World1("FreshHandle", <<1, 0>>, Both, None),
    World1("NewSlotWhileOldIsEmpty", <<1, 0>>, OnlyA, Once1({"unknown"})),
    World1("NoTxn", <<1, 0>>, OnlyA, None),
    World1("NoFence", <<1, 0>>, Both, None),
    World1("ComparedOnce", <<1, 0>>, Both, None),
    World1("FileDeletedAfterError", <<1, 0>>, OnlyA, Once1({"unknown"})),
    World1("AnothersTakenForOurs", <<1, 0>>, Both, None),
    World1("OursTakenForAnothers", <<1, 0>>, OnlyA, Once1({"unknown"})),
    World1("AcknowledgedBeforeDurable", <<1, 0>>, OnlyA, Once1({"power"})),
    World1("OneRetryTooFew", <<1, 0>>, OnlyA, Once1({"foreign"})),
    World1("OverlongCommitTrusted", <<2, 0>>, Both, Once1({"cleanup"})),
    World1("NoLook", <<2, 0>>, OnlyA, None),
    World1("KeptPartitionsNotReadAgain", <<1, 2>>, AllOfA, Once1({"move"})),
    World1("DraftKeptAfterFence", <<2, 0>>, Both, None),
    World1("PositionsKeptAfterFence", <<2, 0>>, Both, None),
    World1("SwappedFileCommitted", <<1, 0>>, OnlyA, Once1({"file"})),
    World1("FencedFileRemoved", <<1, 0>>, OnlyA, Once1({"slow"})),
    World1("PositionIsLastTaken", <<2, 0>>, OnlyA, None),
    World1("PositionIsTxn", <<2, 0>>, Both, None),
    World1("RevokedPositionsKept", <<1, 0>>, OnlyA, Once1({"move"})),
    World1("StaleHandleRebased", <<2, 0>>, OnlyA, Once1({"restore"})),
    World1("EntryReplaced", <<1, 0>>, Both, None),
    World1("RewindNotNoticed", <<1, 0>>, OnlyA, Once1({"rewind", "kill"})),
    World1("RefusalNotWritten", <<2, 0>>, OnlyA, Once1({"restore", "foreign", "cleanup"})),
    World1("AlarmedOnce", <<1, 1>>, Both, Once1({"rewind"})),
    World1("OpenLooksAtNoEntry", <<2, 0>>, OnlyA, Once1({"restore", "kill"})),
    [World1("AppIdsNotCompared", <<1, 0>>, Both, None) EXCEPT !.app = TwoApps]
}

Small == {
    World1("none", <<2, 0>>, Both, Once1({"unknown"})),
    World1("none", <<1, 0>>, Both, Once1({"unknown", "kill", "foreign"})),
    World1("none", <<1, 1>>, AllOfA, Once1({"move"})),
    World1("none", <<1, 0>>, Both, Once1({"cleanup", "foreign", "unknown"})),
    World1("none", <<1, 0>>, OnlyA, Once1({"restore", "cleanup", "kill"})),
    World1("none", <<1, 0>>, OnlyA, Once1({"rewind", "kill", "unknown"})),
    World1("none", <<1, 0>>, Both, Once1({"power", "slow"})),
    World1("none", <<2, 0>>, OnlyA, Once1({"file", "slow", "unknown"})),
    [World1("none", <<1, 0>>, Both, Once1({"unknown", "kill"})) EXCEPT !.app = TwoApps]
}

Large == Small \cup {
    World1("none", <<3, 0>>, Both, Once1({"unknown"})),
    World1("none", <<2, 0>>, Both, Once1({"unknown", "kill"})),
    World1("none", <<2, 1>>, AllOfA, Once1({"move", "unknown"})),
    World1("none", <<2, 0>>, Both, Once1({"cleanup", "foreign", "slow"})),
    World1("none", <<2, 0>>, Both, Once1({"restore", "cleanup"})),
    World1("none", <<1, 0>>, Both, Once1({"restore", "cleanup", "move"})),
    World1("none", <<2, 0>>, Both, Once1({"rewind", "kill"})),
    World1("none", <<2, 0>>, Both, Once1({"power", "slow", "kill"})),
    World1("none", <<2, 0>>, OnlyA, Once1({"file", "move", "unknown"})),
    [World1("none", <<2, 0>>, Both, Once1({"unknown", "kill"})) EXCEPT !.app = TwoApps]
}

\* Where it is asked whether everything lands in the end.
Lively == {
    World1("none", <<1, 0>>, Both, Once1({"unknown", "kill"})),
    World1("none", <<2, 0>>, Both, Once1({"foreign"})),
    World1("none", <<1, 1>>, OnlyA, Once1({"unknown"})),
    World1("none", <<1, 0>>, OnlyA, Once1({"restore", "slow"}))
}
\* Breaks that stop everything: the one forgets a fenced batch's partitions, the other never looks at its slot.
Stuck == {
    World1("FencedNotPlacedAgain", <<2, 0>>, OnlyA, Once1({"slow"})),
    World1("ErrorMeansNotLanded", <<1, 0>>, OnlyA, Once1({"foreign"}))
}

TheWorlds ==
    CASE Size = "quick" -> Small \cup Breaks
      [] Size = "small" -> Small
      [] Size = "large" -> Large
      [] Size = "mutants" -> Breaks
      [] Size = "live" -> Lively
      [] OTHER -> {w \in Stuck : w.broken = Size}

---------------------------------------------------------------------------

ASSUME TLCSet(1, {})  \* the breaks that were found out

Violated ==
    (IF Once THEN {} ELSE {"Once"}) \cup (IF Complete THEN {} ELSE {"Complete"})
    \cup (IF NotBeyond THEN {} ELSE {"NotBeyond"}) \cup (IF Chained THEN {} ELSE {"Chained"})
    \cup (IF Files THEN {} ELSE {"Files"}) \cup (IF Acknowledged THEN {} ELSE {"Acknowledged"})
    \cup (IF Truthful THEN {} ELSE {"Truthful"}) \cup (IF Guarded THEN {} ELSE {"Guarded"})

FoundOut == world.broken \in TLCGet(1)

Safe ==
    \/ FoundOut
    \/ Violated = {}
    \/ PrintT(<<"VIOLATED", world.broken, Violated>>) /\ TLCSet(1, TLCGet(1) \cup {world.broken}) /\ FALSE

Unfinished == ~FoundOut
=============================================================================
