(** Finite laws over a vocabulary V, a list of tokens of any type: specref/dist.py. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Laws.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Implicit Types (p q w : T -> R) (x y : T).

Definition mass w : R := total V w.

Definition is_law w : Prop := (forall x, 0 <= w x) /\ mass w = 1.

Definition normalise w : T -> R := let m := mass w in fun x => w x / m.

(** What the target still wants where the draft law gives enough of the rest. *)
Definition left p q : T -> R := fun x => Num.max (p x - q x) 0.

Definition excess p q : T -> R := normalise (left p q).

Definition without p x : T -> R := normalise (fun y => if y == x then 0 else p y).

Definition point x : T -> R := fun y => (y == x)%:R.

Definition tv p q : R := mass (fun x => `|p x - q x|) / (1 + 1).

(** Draw one token; it is the whole text. *)
Definition one_token w : program R (seq T) := Draw V w (fun y => Ret [:: y]).

Lemma massE w : mass w = \sum_(x <- V) w x.
Proof. exact: totalE. Qed.

Lemma expect_one_token w f : expect (one_token w) f = \sum_(y <- V) w y * f [:: y].
Proof. exact: expect_draw. Qed.

Lemma left_ge0 p q x : 0 <= left p q x.
Proof. by rewrite le_maxr lexx orbT. Qed.

Lemma mass_ge0 w : (forall x, 0 <= w x) -> 0 <= mass w.
Proof. by move=> w0; rewrite massE sumr_ge0. Qed.

(** Where the mass is 0, so is every entry, and any sum weighted by them. *)
Lemma mass0_on w y : (forall x, 0 <= w x) -> mass w = 0 -> y \in V -> w y = 0.
Proof.
move=> w0 /eqP; rewrite massE big_seq psumr_eq0 => [/allP m0 yV|x _]; last exact: w0.
by have /implyP/(_ yV)/eqP := m0 y yV.
Qed.

Lemma mass0_sum w f : (forall x, 0 <= w x) -> mass w = 0 -> \sum_(y <- V) w y * f y = 0.
Proof. by move=> w0 m0; rewrite big_seq big1 // => y yV; rewrite (mass0_on w0 m0 yV) mul0r. Qed.

Lemma eq_mass p q : {in V, p =1 q} -> mass p = mass q.
Proof. by move=> pq; rewrite !massE; apply: eq_big_seq. Qed.

(** Drawing from normalised weights, taken as often as they weigh, is summing the weights. *)
Lemma normalise_sum w f :
  (forall x, 0 <= w x) -> mass w * (\sum_(y <- V) normalise w y * f y) = \sum_(y <- V) w y * f y.
Proof.
move=> w0; have [m0|m0] := eqVneq (mass w) 0; first by rewrite m0 mul0r mass0_sum.
by rewrite big_distrr /=; apply: eq_bigr => y _; rewrite mulrA [mass w * _]mulrC divfK.
Qed.

Lemma normalise_law w : (forall x, 0 <= w x) -> mass w != 0 -> is_law (normalise w).
Proof.
move=> w0 m0; split=> [x|]; first by rewrite divr_ge0 ?mass_ge0.
by rewrite massE -mulr_suml -massE divff.
Qed.

Lemma point_law x : uniq V -> x \in V -> is_law (point x).
Proof.
move=> uV xV; split=> [y|]; first exact: ler0n.
rewrite massE (bigD1_seq x) //= /point eqxx big1 ?addr0 // => y /negbTE->; exact: erefl.
Qed.

Lemma point_sum x f : uniq V -> x \in V -> \sum_(y <- V) point x y * f y = f x.
Proof.
move=> uV xV; rewrite (bigD1_seq x) //= /point eqxx mul1r big1 ?addr0 // => y /negbTE->.
exact: mul0r.
Qed.

End Laws.
