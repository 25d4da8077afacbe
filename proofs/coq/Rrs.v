(** 6. Recursive rejection, siblings with or without replacement: specref/rules/rrs_with.py and
    rrs_without.py, which differ in the law of the next sibling alone.

    Any number of siblings at a node, any tree, any depth; context-dependent models. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Lemma Instance.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Rrs.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Local Notation row := (T -> R).
Variables p q : text -> row.

Section Following.

(** From the law of a sibling and its token to the law of the next sibling. *)
Variable following : row -> T -> row.

(** The rest of a node's children, with the laws of target and draft that they are tried by. *)
Fixpoint rrs_at (d : draft T) (ctx : text) (a s : row) : program R text :=
  match d with
  | Last => one_token V a
  | Child x below next =>
      let ctx' := rcons ctx x in
      flip (Num.min 1 (a x / s x))
           (emit x (rrs_at below ctx' (p ctx') (q ctx')))
           (rrs_at next ctx (excess V a s) (following s x))
  end.

Definition rrs (d : draft T) (ctx : text) : program R text := rrs_at d ctx (p ctx) (q ctx).

Hypothesis p_law : forall ctx, is_law V (p ctx).

(** Given a draft, the rule is the lemma's verifier with immediate commitment. *)
Lemma rrs_at_instance d ctx before a owed f z :
  possible V (drawn_by q following) d ctx before -> is_law V a -> a =1 owed ->
  expect (rrs_at d ctx a (foldl following (q ctx) before)) f
  = expect (one_by_one V (@immediate R T) p (drawn_by q following) d ctx before owed)
      (worth f z [::]).
Proof.
elim: d ctx before a owed f => [|x below ihb next ihn] ctx before a owed f.
  move=> _ [a0 a1] ao; rewrite [rrs_at _ _ _ _]/= [one_by_one _ _ _ _ _ _ _ _]/= /here.
  have same : mass V owed = 1 by rewrite -(eq_mass (fun y _ => ao y)).
  rewrite expect_one_token expect_flip expect_draw same subrr mul0r addr0 mul1r.
  by apply: eq_bigr => y _; rewrite /normalise same divr1 ao.
case=> xV s_law sx pb pn a_law ao.
rewrite one_by_one_child expect_bind /immediate !expect_flip expect_ret expect_emit.
have owed_law : is_law V owed.
  by split=> [y|]; rewrite -?ao ?a_law.1 // -(eq_mass (fun y _ => ao y)) a_law.2.
rewrite -(ao x); congr (_ * _ + _); last first.
  have [S0|S0] := eqVneq (mass V (left owed (drawn_by q following ctx before x))) 0.
    by rewrite ao (nothing_left owed_law s_law xV sx S0) subrr !mul0r.
  have leftE : left a (drawn_by q following ctx before x)
      =1 left owed (drawn_by q following ctx before x).
    by move=> y; rewrite /left ao.
  congr (_ * _); rewrite -foldl_rcons; apply: ihn => // [|y].
    by apply: normalise_law => [y|]; [exact: left_ge0 | rewrite (eq_mass (fun y _ => leftE y))].
  rewrite /refused owed_law.2 subrr addr0 -(eq_mass (fun y _ => leftE y)) -leftE //.
rewrite (ihb (rcons ctx x) [::] (p (rcons ctx x)) (fun y => 1 * p (rcons ctx x) y)) //; last first.
  by move=> y; rewrite mul1r.
apply: (sure p_law (@immediate_surely R T) pb) => //.
split=> [y|]; first by rewrite mul1r (p_law _).1.
by rewrite -(eq_mass (p := p (rcons ctx x))) ?(p_law _).2 // => y _; rewrite mul1r.
Qed.

Theorem rrs_instance_6 d ctx f z :
  possible V (drawn_by q following) d ctx [::] ->
  expect (rrs d ctx) f
  = expect (verify V (@immediate R T) p (drawn_by q following) d ctx) (worth f z [::]).
Proof. by move=> pd; exact: (@rrs_at_instance d ctx [::]). Qed.

Theorem rrs_lossless_4 pl ctx :
  truthful V (drawn_by q following) pl ctx [::] ->
  lossless V p ctx (bind (grow V pl) (rrs^~ ctx)).
Proof.
move=> tr v fv; rewrite expect_bind.
rewrite -(verify_4 (@immediate_commits_5 R T) p_law 0 tr fv).
apply: (eq_expect_truthful tr) => d pd; rewrite (rrs_instance_6 _ 0 pd).
by apply: eq_expect => -[].
Qed.

End Following.

(** specref/rules/rrs_with.py *)
Definition rrs_with := rrs again.

(** specref/rules/rrs_without.py *)
Definition rrs_without := rrs (without V).

Hypothesis p_law : forall ctx, is_law V (p ctx).
Hypothesis q_law : forall ctx, is_law V (q ctx).

Theorem rrs_with_lossless_6 pl ctx :
  truthful V (drawn_by q again) pl ctx [::] ->
  lossless V p ctx (bind (grow V pl) (rrs_with^~ ctx)).
Proof. exact: rrs_lossless_4. Qed.

Theorem rrs_without_lossless_6 pl ctx :
  truthful V (drawn_by q (without V)) pl ctx [::] ->
  lossless V p ctx (bind (grow V pl) (rrs_without^~ ctx)).
Proof. exact: rrs_lossless_4. Qed.

(** As in [specref.RULES], with the drafter of the rule. *)
Corollary rrs_with_drawn_6 widths ctx :
  lossless V p ctx (bind (grow V (with_replacement q widths ctx)) (rrs_with^~ ctx)).
Proof. by apply: rrs_with_lossless_6; apply: with_replacement_truthful. Qed.

Corollary rrs_without_drawn_6 widths ctx :
  lossless V p ctx (bind (grow V (without_replacement V q widths ctx)) (rrs_without^~ ctx)).
Proof. by apply: rrs_without_lossless_6; apply: without_replacement_truthful. Qed.

End Rrs.
