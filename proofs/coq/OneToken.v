(** 2. One token: what is kept and what is corrected make up the target; the draft is accepted with
    probability 1 - TV(p, q); and no coupling of draft and output accepts more. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Identities.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section OneToken.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Variables p q : T -> R.
Hypothesis p_law : is_law V p.
Hypothesis q_law : is_law V q.

Definition kept (x : T) : R := q x * Num.min 1 (p x / q x).

Definition acceptance : R := mass V kept.

Lemma keptE x : kept x = Num.min (q x) (p x).
Proof. exact: identity_1_i p_law.1 q_law.1 x. Qed.

(** The chance of a rejection is the mass of the residual. *)
Theorem rejection_2 : 1 - acceptance = mass V (left p q).
Proof.
rewrite /acceptance massE; under eq_bigr do rewrite keptE.
by rewrite identity_1_ii // p_law.2 subrr add0r.
Qed.

Theorem lossless_2 x : x \in V -> kept x + (1 - acceptance) * excess V p q x = p x.
Proof.
move=> xV; rewrite rejection_2 keptE -[RHS](identity_1_iii p q); congr (_ + _).
have [m0|m0] := eqVneq (mass V (left p q)) 0; last by rewrite mulrC divfK.
by rewrite m0 mul0r (mass0_on (left_ge0 p q) m0).
Qed.

Theorem acceptance_2 : acceptance = 1 - tv V p q.
Proof.
have two : (1 + 1 : R) != 0 by rewrite -(natrD _ 1 1) pnatr_eq0.
apply: (mulIf two); rewrite mulrBl /tv divfK // mulrDr mulr1 mul1r.
rewrite -{1}p_law.2 -q_law.2 /acceptance !massE -!big_split -sumrB; apply: eq_bigr => x _ /=.
rewrite keptE; have [le|lt] := leP (q x) (p x).
  by rewrite ger0_norm ?subr_ge0 // opprB addrC addrA subrK.
by rewrite ltr0_norm ?subr_lt0 // opprK addrACA subrr addr0.
Qed.

(** A coupling: x is drafted and y emitted with mass pi(x, y). *)
Theorem optimal_2 (pi : T -> T -> R) :
  (forall x y, 0 <= pi x y) ->
  {in V, forall x, \sum_(y <- V) pi x y = q x} -> {in V, forall y, \sum_(x <- V) pi x y = p y} ->
  \sum_(x <- V) pi x x <= acceptance.
Proof.
move=> pi0 rows columns; rewrite /acceptance massE big_seq [leRHS]big_seq.
apply: ler_sum => x xV; rewrite keptE le_minr -rows // -columns //.
by rewrite !(big_rem x xV) /= !ler_addl !sumr_ge0.
Qed.

End OneToken.
