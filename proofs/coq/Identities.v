(** 1. The three identities behind every rule.

    A token x drafted from the law s is accepted with min(1, owed(x) / s(x)), where [owed] is what
    the node still has to emit, r in all; [left] is (owed - s)+, S in all. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Identities.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Variables (owed s : T -> R).
Hypothesis owed0 : forall x, 0 <= owed x.
Hypothesis s0 : forall x, 0 <= s x.

(** (i) What a child receives is the smaller of the two masses. *)
Theorem identity_1_i x : s x * Num.min 1 (owed x / s x) = Num.min (s x) (owed x).
Proof.
have [sx|sx] := eqVneq (s x) 0; first by rewrite sx mul0r (min_idPl (owed0 x)).
by rewrite minr_pmulr // mulr1 mulrCA divff // mulr1.
Qed.

(** (iii) What it receives and what is left make up what is owed. *)
Theorem identity_1_iii x : Num.min (s x) (owed x) + left owed s x = owed x.
Proof.
rewrite /left; have [le|lt] := leP (s x) (owed x).
  by rewrite (max_idPl _) ?subr_ge0 // addrC subrK.
by rewrite (max_idPr _) ?addr0 // subr_le0 ltW.
Qed.

(** (ii) The chance of a refusal is 1 - r + S. *)
Theorem identity_1_ii :
  1 - \sum_(x <- V) Num.min (s x) (owed x) = 1 - mass V owed + mass V (left owed s).
Proof.
rewrite !massE -(eq_bigr _ (fun x _ => identity_1_iii x)) big_split /=.
by rewrite opprD addrA subrK.
Qed.

End Identities.
