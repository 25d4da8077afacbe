(** The programs of these files, evaluated: what proofs/test_coq.py compares with specref.

    Everything is over the rationals and tokens 0, 1, ...; nothing is defined anew here but tables
    of laws and the printing of a law as integers. *)

From Coq Require Import ZArith QArith Qcanon.
From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Lemma Rrs Token Match TargetOnly Traversal.
From specref Require Import Planned Rounds Rational.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Notation Num := Qc_realFieldType.
Notation text := (seq nat).
Notation tree := (draft nat_eqType).

(** A model as in [specref.model.Table], that looks at the whole context. *)
Definition table (rows : seq (text * seq Qc)) (ctx : text) : nat -> Qc :=
  let row := nth [::] [seq r.2 | r <- rows] (index ctx [seq r.1 | r <- rows]) in nth 0 row.

(** Add up the masses of equal outcomes. *)
Fixpoint add_to (out : text) (mass : Qc) (found : seq (text * Qc)) : seq (text * Qc) :=
  match found with
  | [::] => [:: (out, mass)]
  | (t, m) :: rest => if t == out then (t, m + mass) :: rest else (t, m) :: add_to out mass rest
  end.

Definition outcomes (m : program Num text) : seq (text * Qc) :=
  foldr (fun l => add_to l.1 l.2) [::] (leaves m).

(** Length, tokens, numerator and denominator, one outcome after the other. *)
Definition printed (m : program Num text) : seq Z :=
  flatten [seq Z.of_nat (size o.1) :: [seq Z.of_nat x | x <- o.1]
               ++ [:: Qnum (this o.2); Zpos (Qden (this o.2))]
          | o <- outcomes m].

Section Tie.
Variable V : seq nat.
Variables p q : text -> nat -> Qc.

Definition of_draft (rule : tree -> text -> program Num text) (d : tree) : seq Z :=
  printed (rule d [::]).

Definition of_round (rule : tree -> text -> program Num text) (pl : plan Num nat_eqType) : seq Z :=
  printed (bind (grow V pl) (rule^~ [::])).

(** The lemma's verifier of a node with a weight; a refusal is printed as the empty text. *)
Definition of_lemma commit declared (d : tree) (weight : Qc) : seq Z :=
  printed (text_of (one_by_one V commit p declared d [::] [::] (fun y => weight * p [::] y))).

(** The same with a plan: the shares of the members by text and tuple, and what is owed besides by
    text. *)
Definition of_plan commit (shares : seq ((text * text) * seq Qc)) (besides : seq (text * seq Qc))
    (d : tree) (weight : Qc) : seq Z :=
  let share ctx (_ : nat -> Qc) t :=
    nth [::] [seq r.2 | r <- shares] (index (ctx, t) [seq r.1 | r <- shares]) in
  let rest ctx (_ : nat -> Qc) := table besides ctx in
  printed (text_of (verify_planned V commit p share rest d [::] (fun y => weight * p [::] y))).

(** Whole sequences: chains of [gamma], verified by [token]. *)
Definition of_sequence (ends : text) (limit gamma : nat) : seq Z :=
  let stop out := if out is x :: rest then last x rest \in ends else false in
  let round out := bind (grow V (with_replacement q (nseq gamma 1%N) out)) (token V p q ^~ out) in
  printed (decode stop limit round limit [::]).

End Tie.
