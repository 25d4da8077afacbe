(** 6. Target-only verification, and one-hot: specref/rules/target_only.py and one_hot.py.

    Lossless on each draft by itself, of any origin and shape: nothing is asked of its law. Equal
    siblings count once. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section TargetOnly.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Variable p : text -> T -> R.

(** The tokens of a node's children. *)
Fixpoint heads (d : draft T) : seq T :=
  if d is Child x _ next then x :: heads next else [::].

(** What is left of p when the siblings are zeroed. *)
Definition others (w : T -> R) (siblings : seq T) : T -> R :=
  fun y => if y \in siblings then 0 else w y.

(** The coin falls on a sibling, or on none: then draw among the others. *)
Definition fall (w : T -> R) (siblings : seq T) (follow : T -> program R text) : program R text :=
  let rest := others w siblings in
  Draw (rcons [seq Some x | x <- undup siblings] None)
       (fun fell => if fell is Some x then w x else mass V rest)
       (fun fell => if fell is Some x then follow x else one_token V (normalise V rest)).

(** Go to the first child with token y. *)
Fixpoint follow (d : draft T) (ctx : text) (y : T) : program R text :=
  match d with
  | Last => Ret [:: y]
  | Child x below next =>
      let ctx' := rcons ctx y in
      if y == x then emit y (fall (p ctx') (heads below) (follow below ctx'))
      else follow next ctx y
  end.

Definition target_only (d : draft T) (ctx : text) : program R text :=
  fall (p ctx) (heads d) (follow d ctx).

(** specref/rules/one_hot.py, on chains. *)
Fixpoint one_hot (d : draft T) (ctx : text) : program R text :=
  match d with
  | Last => one_token V (p ctx)
  | Child x below _ =>
      flip (p ctx x) (emit x (one_hot below (rcons ctx x))) (one_token V (without V (p ctx) x))
  end.

Hypothesis uV : uniq V.
Hypothesis p_law : forall ctx, is_law V (p ctx).

Lemma others_ge0 w siblings y : (forall x, 0 <= w x) -> 0 <= others w siblings y.
Proof. by move=> w0; rewrite /others; case: ifP. Qed.

Lemma fall_draws w siblings k f (g : T -> R) :
  (forall x, 0 <= w x) -> all (mem V) siblings ->
  (forall y, y \in siblings -> expect (k y) f = g y) ->
  (forall y, y \notin siblings -> f [:: y] = g y) ->
  expect (fall w siblings k) f = \sum_(y <- V) w y * g y.
Proof.
move=> w0 /allP sV kg fg; rewrite /fall expect_draw -cats1 big_cat big_map big_seq1.
rewrite expect_one_token normalise_sum => [|y]; last exact: others_ge0.
rewrite [RHS](bigID (mem siblings)) /=; congr (_ + _).
  rewrite -[RHS]big_filter [RHS](perm_big (undup siblings)) /=; last first.
    apply: uniq_perm; rewrite ?undup_uniq ?filter_uniq // => y.
    rewrite mem_filter mem_undup; apply/andP/idP => [[]//|ys]; split=> //; exact: sV.
  by rewrite big_seq [RHS]big_seq; apply: eq_bigr => y; rewrite mem_undup => ys; rewrite kg.
rewrite [LHS](bigID (mem siblings)) /= big1 => [|y ys]; last by rewrite /others ys mul0r.
by rewrite add0r; apply: eq_bigr => y ys; rewrite /others (negbTE ys) fg.
Qed.

Lemma all_in_heads d : all_in V d -> all (mem V) (heads d).
Proof. by elim: d => [//|x below _ next ih] /= /and3P[-> _ /ih]. Qed.

Lemma follow_fair d ctx y v :
  all_in V d -> y \in heads d -> fair V p ctx v ->
  expect (follow d ctx y) (fun out => v (ctx ++ out)) = v (rcons ctx y).
Proof.
elim: d ctx y => [//|x below ihb next ihn] ctx y /= /and3P[xV ab an]; rewrite inE => yd fv.
case: eqP yd => [_ _|_ /= yn]; last exact: ihn.
rewrite expect_emit (fair_at (fair_rcons y fv)).
apply: (fall_draws (g := fun z => v (rcons (rcons ctx y) z))) => [|||z _].
- exact: (p_law _).1.
- exact: all_in_heads.
- move=> z zb; under eq_expect do rewrite -cat_rcons.
  by apply: ihb => //; apply: fair_rcons.
- by rewrite -cat_rcons cats1.
Qed.

Theorem target_only_lossless_6 d ctx : all_in V d -> lossless V p ctx (target_only d ctx).
Proof.
move=> ad v fv; rewrite /target_only (fair_at fv).
apply: (fall_draws (g := fun z => v (rcons ctx z))) => [|||z _].
- exact: (p_law _).1.
- exact: all_in_heads.
- by move=> y yd; apply: follow_fair.
- by rewrite cats1.
Qed.

(** One-hot is target-only on a chain. *)
Theorem one_hot_is_target_only_6 d ctx f :
  all_in V d -> is_chain d -> expect (one_hot d ctx) f = expect (target_only d ctx) f.
Proof.
elim: d ctx f => [|x below ih [|//] _] ctx f.
  move=> _ _; rewrite /target_only /fall expect_draw big_seq1 expect_one_token normalise_sum.
    by rewrite expect_one_token.
  by move=> y; apply: others_ge0; exact: (p_law _).1.
case/and3P=> xV ab _ cb; rewrite /target_only /fall [undup _]/= expect_draw big_cons big_seq1.
rewrite [one_hot _ _]/= expect_flip; congr (_ * _ + _).
  by rewrite /= eqxx !expect_emit ih.
have onlyE y : others (p ctx) [:: x] y = if y == x then 0 else p ctx y by rewrite /others inE.
have massO : mass V (others (p ctx) [:: x]) = mass V (fun y => if y == x then 0 else p ctx y).
  by apply: eq_mass => y _; exact: onlyE.
rewrite !expect_one_token massO; congr (_ * _); last first.
  by apply: eq_bigr => y _; rewrite /without /normalise massO onlyE.
rewrite -[1](p_law ctx).2 !massE (bigD1_seq x) //= addrAC subrr add0r.
rewrite [RHS](bigD1_seq x) //= eqxx add0r; apply: eq_bigr => y yx.
by rewrite (negbTE yx).
Qed.

Theorem one_hot_lossless_6 d ctx :
  all_in V d -> is_chain d -> lossless V p ctx (one_hot d ctx).
Proof.
by move=> ad cd v fv; rewrite (one_hot_is_target_only_6 _ _ ad cd) target_only_lossless_6.
Qed.

End TargetOnly.
